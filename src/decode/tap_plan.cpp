#include "decode/tap_plan.h"

namespace dflash::decode {

TapPlan::TapPlan(std::vector<int64_t> proposer, std::vector<int64_t> capture)
    : taps_(proposer), proposer_(proposer.size()), capture_(capture.size()) {
  if (capture == proposer) return;
  capture_first_ = proposer_;
  taps_.insert(taps_.end(), capture.begin(), capture.end());
}

at::Tensor TapPlan::columns(const at::Tensor& taps_RF, size_t first, size_t count) const {
  if (count == taps_.size()) return taps_RF;
  const int64_t width = taps_RF.size(1) / static_cast<int64_t>(taps_.size());
  return taps_RF.narrow(1, static_cast<int64_t>(first) * width,
                        static_cast<int64_t>(count) * width);
}

}  // namespace dflash::decode
