// The packed form of one weight matrix and its product. Kept out of linear.h: only Linear and Head
// know it.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/compute.h"

namespace dflash::nn {

class PackedWeight {
 public:
  /// weight_OI f32 or bf16.
  PackedWeight(const at::Tensor& weight_OI, Compute compute);

  /// y[r, o] = sum_i x[r, i] w[o, i] (+ bias[o]); every row in the same order of i.
  void multiply(const float* x, int64_t rows, const float* bias, float* y) const;

  int64_t in_features() const { return in_; }
  int64_t out_features() const { return out_; }

 private:
  int64_t in_, out_;
  Compute compute_;
  at::Tensor weight_IO_;  // f32, values already rounded to the compute type
};

}  // namespace dflash::nn
