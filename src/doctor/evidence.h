// What a drafter is judged by: the target's own greedy answers to prompts, as documents, with the
// hidden states that any convention under test may want.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "decode/engine.h"
#include "doctor/convention.h"
#include "target/target.h"

namespace dflash::doctor {

struct EvidenceOptions {
  int64_t max_new_tokens = 96;
  int64_t batch = 32;  // answers decoded in one pass
  std::vector<int64_t> stop_ids = {};
  std::function<bool()> should_stop = {};  // may be empty
};

/// Greedy decoding of all prompts. nullptr: plain. Error: it was told to stop before the end.
std::vector<decode::Result> decode_prompts(const target::Target& target, decode::Proposer* proposer,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const EvidenceOptions& options);

/// Prompt + greedy answer of every prompt as one document each, the answer supervised, in the
/// prompts' order. Error when a prompt and its answer do not fit the context, or when stopped.
data::Dataset own_answers(const target::Target& target,
                          const std::vector<std::vector<int64_t>>& prompts,
                          const EvidenceOptions& options);

/// Position of the token in the middle of a document's answer. Error: the answer is empty.
int64_t middle_of_answer(const data::Dataset& dataset, int64_t document);

/// Residuals after `layers`, of every document, f32 [T, layers * D].
std::vector<at::Tensor> hidden_states(const target::Target& target, const data::Dataset& dataset,
                                      const std::vector<int64_t>& layers);

}  // namespace dflash::doctor
