// What an operator of this module does, for profile ranges around it.
#pragma once

#include "base/profile.h"
#include "nn/linear.h"
#include "nn/packed.h"

namespace dflash::nn {

/// Of linear over `rows` rows. No bytes where the weight may have kept the blocks of its file,
/// whose size Linear does not tell.
inline profile::Work work_of(const Linear& linear, int64_t rows) {
  const bool bf16 = linear.compute() == Compute::kBF16;
  profile::Work work =
      profile::product(rows, linear.out_features(), linear.in_features(), bf16 ? 2 : 4);
  if (!linear.weight.defined() && PackedWeight::keeps_blocks(linear.compute())) work.bytes = 0;
  return work;
}

/// Of a target's head, whose packed form may have kept blocks beside its plain weight.
inline profile::Work work_of_head(const Linear& linear, const at::Tensor& hidden_RD) {
  profile::Work work = work_of(linear, hidden_RD.numel() / hidden_RD.size(-1));
  if (PackedWeight::keeps_blocks(linear.compute())) work.bytes = 0;
  return work;
}

}  // namespace dflash::nn
