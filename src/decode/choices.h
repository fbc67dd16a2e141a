// The target's own choices at the rows of one pass: final norm and head for the rows that need
// them, and no others. Greedy rows go through Head::argmax (no logits are stored), sampled rows
// through logits and `choose`.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "decode/sampler.h"
#include "target/target.h"

namespace dflash::decode {

class Choices {
 public:
  /// `greedy` and `sampled`: rows of last_RD, ascending, each row in one of them at most.
  Choices(const target::Target& target, const at::Tensor& last_RD, std::vector<int64_t> greedy,
          std::vector<int64_t> sampled);

  /// The target's token for absolute `position`, from the row before it.
  int64_t at(int64_t row, const Sampling& sampling, int64_t position) const;

 private:
  std::vector<int64_t> greedy_, sampled_;
  at::Tensor argmax_R;   // of the greedy rows
  at::Tensor logits_RV;  // of the sampled rows
};

}  // namespace dflash::decode
