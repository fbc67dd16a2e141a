// The score of a convention: teacher-forced expected acceptance length on the target's own answers.
// For an anchor, with q(j) the drafter's probability of the answer's token at anchor + j:
//   1 + q(1) + q(1) q(2) + ... + q(1) ... q(B-1)
// (FIELD.md: the mean number of committed tokens if drafts were drawn from q). It moves with every
// small change of the drafter's probabilities, where the greedy length only counts argmaxes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "doctor/convention.h"
#include "doctor/statistics.h"
#include "nn/head.h"
#include "train/vocabulary.h"

namespace dflash::doctor {

struct ScoreInputs {
  const target::Target& target;
  const data::Dataset& dataset;          // documents as own_answers makes them
  const std::vector<int64_t>& layers;    // of `banks`
  const std::vector<at::Tensor>& banks;  // hidden_states, one a document
  const train::Vocabulary& vocabulary;   // over the drafter's head
  int64_t anchors_per_document = 64;
};

struct Score {
  PromptScores expected;  // the score above
  PromptScores greedy;    // 1 + leading slots whose argmax is the answer's token
  bool finite = true;     // false: some logits were not; their tokens count as never drafted
};

/// Every convention is scored on the same anchors and the same positions anchor + 1 ..
/// anchor + B - 1.
Score score_convention(const Convention& convention, const draft::Drafter& drafter,
                       const ScoreInputs& inputs);

}  // namespace dflash::doctor
