#include "nn/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>

#include "base/error.h"

namespace dflash::nn {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  DF_ASSERT(weight_D.dim() == 1 && x.size(-1) == weight_D.size(0), "x has {}, weight {}",
            x.size(-1), weight_D.size(0));
  return x * at::rsqrt(at::mean(x * x, -1, true) + eps) * weight_D;
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const int64_t width = gate_up.size(-1) / 2;
  DF_ASSERT(gate_up.size(-1) == 2 * width, "odd width {}", gate_up.size(-1));
  return at::silu(gate_up.narrow(-1, 0, width)) * gate_up.narrow(-1, width, width);
}

}  // namespace dflash::nn
