// The target's own choices at the rows of one pass: final norm and head for the rows that need
// them, and no others. Greedy rows go through Head::argmax (no logits are stored); rows that are
// sampled, or whose log-probabilities somebody wants, through logits and `choose`.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "decode/log_probs.h"
#include "decode/sampler.h"
#include "target/target.h"

namespace dflash::decode {

class Choices {
 public:
  /// Rows of last_RD by what is computed for them, ascending, each row in one of them at most.
  Choices(const target::Target& target, const at::Tensor& last_RD, std::vector<int64_t> argmax_rows,
          std::vector<int64_t> logits_rows);

  /// The target's token for absolute `position`, from the row before it.
  int64_t at(int64_t row, const Sampling& sampling, int64_t position) const;
  /// Of `token` at a row of logits_rows.
  TokenLogProbs log_probs_at(int64_t row, int64_t token, int64_t num_top) const;

 private:
  std::span<const float> logits(int64_t row) const;

  std::vector<int64_t> argmax_rows_, logits_rows_;
  at::Tensor argmax_R_, logits_RV_;
};

}  // namespace dflash::decode
