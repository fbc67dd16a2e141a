#include "nn/packed.h"

namespace dflash::nn {

PackedWeight::PackedWeight(const at::Tensor& weight_OI, Compute compute)
    : in_(weight_OI.size(1)), out_(weight_OI.size(0)), compute_(compute) {
  const auto dtype = compute == Compute::kBF16 ? at::kBFloat16 : at::kFloat;
  weight_IO_ = weight_OI.detach().to(dtype).to(at::kFloat).t().contiguous();
}

void PackedWeight::multiply(const float* x, int64_t rows, const float* bias, float* y) const {
  const float* w = weight_IO_.const_data_ptr<float>();
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    float* to = y + r * out_;
    for (int64_t o = 0; o < out_; ++o) to[o] = bias ? bias[o] : 0.0F;
    for (int64_t i = 0; i < in_; ++i) {
      const float from = x[r * in_ + i];
      const float value = compute_ == Compute::kBF16 ? float(c10::BFloat16(from)) : from;
      for (int64_t o = 0; o < out_; ++o) to[o] += value * w[i * out_ + o];
    }
  }
}

}  // namespace dflash::nn
