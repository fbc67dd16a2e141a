// Plain RMSNorm, in f32: y = w * x * rsqrt(mean(x^2) + eps) over the last dimension (MODELS.md,
// notation). Differentiable under grad mode, a fused row kernel otherwise; both agree to rounding.
#pragma once

#include <ATen/core/Tensor.h>

namespace dflash::nn {

/// x [..., D] f32, weight_D f32 -> [..., D] f32.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps);

/// silu(gate) * up of gate_up [..., 2I] = [gate | up] -> [..., I], f32.
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace dflash::nn
