// Collects copies of the residual stream during a pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dflash::target {

class TapWriter {
 public:
  /// Error when a tap is neither -1 (the embedding) nor a block of the target.
  TapWriter(std::vector<int64_t> taps, int64_t rows, int64_t hidden_size, int64_t num_layers);

  /// h_RD is the residual after block `layer`, -1 the embedding; copied where it is tapped.
  void take(int64_t layer, const at::Tensor& h_RD);

  /// [R, taps * D] f32; undefined without taps.
  const at::Tensor& taps_RF() const { return taps_RF_; }

 private:
  std::vector<int64_t> taps_;
  int64_t hidden_size_;
  at::Tensor taps_RF_;
};

}  // namespace dflash::target
