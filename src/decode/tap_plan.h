// The taps of one pass for two readers, the proposer and a capture, as columns of one tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dflash::decode {

class TapPlan {
 public:
  TapPlan(std::vector<int64_t> proposer, std::vector<int64_t> capture);

  /// What the pass has to tap; each reader's in its own order.
  const std::vector<int64_t>& all() const { return taps_; }
  at::Tensor for_proposer(const at::Tensor& taps_RF) const {
    return columns(taps_RF, 0, proposer_);
  }
  at::Tensor for_capture(const at::Tensor& taps_RF) const {
    return columns(taps_RF, capture_first_, capture_);
  }

 private:
  at::Tensor columns(const at::Tensor& taps_RF, size_t first, size_t count) const;

  std::vector<int64_t> taps_;
  size_t proposer_, capture_, capture_first_ = 0;
};

}  // namespace dflash::decode
