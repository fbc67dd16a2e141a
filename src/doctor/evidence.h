// What a drafter is judged by: the target's own greedy answers to prompts, as documents, with the
// hidden states that any convention under test may want.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "doctor/convention.h"
#include "target/target.h"

namespace dflash::doctor {

struct EvidenceOptions {
  int64_t max_new_tokens = 96;
  int64_t batch = 32;  // answers decoded in one pass
  std::vector<int64_t> stop_ids = {};
  std::function<bool()> should_stop = {};  // may be empty
};

/// Prompt + greedy answer of every prompt as one document each, the answer supervised, in the
/// prompts' order. Error when a prompt and its answer do not fit the context.
data::Dataset own_answers(const target::Target& target,
                          const std::vector<std::vector<int64_t>>& prompts,
                          const EvidenceOptions& options);

/// Residuals after `layers`, of every document, f32 [T, layers * D].
std::vector<at::Tensor> hidden_states(const target::Target& target, const data::Dataset& dataset,
                                      const std::vector<int64_t>& layers);

}  // namespace dflash::doctor
