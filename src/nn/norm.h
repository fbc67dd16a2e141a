// Plain RMSNorm, in f32: y = w * x * rsqrt(mean(x^2) + eps) over the last dimension (MODELS.md,
// notation). Differentiable under grad mode, a fused row kernel otherwise; both agree to rounding.
#pragma once

#include <ATen/core/Tensor.h>

namespace dflash::nn {

/// x [..., D] f32, weight_D f32 -> [..., D] f32.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps);

/// silu(gate) * up of gate_up [..., 2I] = [gate | up] -> [..., I], f32.
at::Tensor swiglu(const at::Tensor& gate_up);

/// No grad: x_RN * logistic(gate_RN), f32; rows of a slice are read in place.
at::Tensor logistic_gate(const at::Tensor& x_RN, const at::Tensor& gate_RN);

}  // namespace dflash::nn
