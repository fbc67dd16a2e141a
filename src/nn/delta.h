// The gated delta net's own operations (MODELS.md 3.5), no grad: the causal convolution and the
// delta rule over rows of many sequences, each with its own state. Always the recurrence, row by
// row, never a chunked form: so prefill in any chunks, plain steps and verification give the same
// bits. All f32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "nn/attention.h"

namespace dflash::nn {

struct DeltaShape {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t conv_taps = 0;  // rows that the convolution sees, its own included

  int64_t qk_width() const { return key_heads * key_dim; }
  int64_t value_width() const { return value_heads * value_dim; }
  int64_t conv_width() const { return 2 * qk_width() + value_width(); }  // C
};

/// Rows of one sequence and the last conv_taps - 1 rows before them, [conv_taps - 1, C].
struct ConvPart {
  RowRange rows;
  at::Tensor before;
};

/// x_RC f32 (rows may be a slice of wider ones), weight_TC f32 [taps, C] -> silu of the
/// channel-wise causal convolution, [R, C]. Rows outside all parts are undefined.
at::Tensor causal_conv_silu(const at::Tensor& x_RC, const at::Tensor& weight_TC,
                            std::span<const ConvPart> parts);

/// What the delta rule needs of the rows of a pass.
struct DeltaInputs {
  at::Tensor q_RHE, k_RHE;       // [R, key_heads, key_dim], of length 1 (q: times key_dim^-1/2)
  at::Tensor v_RHE;              // [R, value_heads, value_dim]
  at::Tensor decay_RH, beta_RH;  // [R, value_heads]: e^g, logistic(b)
};

/// conv_RC as causal_conv_silu returns it; a_RH, b_RH [R, value_heads]; rate_H = exp(A_log) and
/// dt_bias_H.
DeltaInputs delta_inputs(const DeltaShape& shape, const at::Tensor& conv_RC, const at::Tensor& a_RH,
                         const at::Tensor& b_RH, const at::Tensor& rate_H,
                         const at::Tensor& dt_bias_H);

/// Rows of one sequence; the state [value_heads, key_dim, value_dim] goes from `from` to `to`,
/// which may be the same tensor.
struct DeltaPart {
  RowRange rows;
  at::Tensor from, to;
};

/// [R, value_heads, value_dim]. Value head j reads key head j / (value_heads / key_heads).
at::Tensor delta_rule(const DeltaInputs& inputs, std::span<const DeltaPart> parts);
/// The states only.
void advance_delta_states(const DeltaInputs& inputs, std::span<const DeltaPart> parts);

}  // namespace dflash::nn
