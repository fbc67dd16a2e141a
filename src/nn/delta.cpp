#include "nn/delta.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <omp.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "nn/kernels/select.h"
#include "nn/norm.h"
#include "nn/shapes.h"

namespace dflash::nn {
namespace {

constexpr int64_t kWorthThreads = 1 << 17;  // products
constexpr double kLengthEps = 1e-6;         // added to the sum of squares of q and k

/// x / sqrt(sum(x^2) + eps) * scale over the last dimension, as a norm over the mean of squares.
at::Tensor to_length(const at::Tensor& x_RHE, double scale) {
  const auto width = static_cast<double>(x_RHE.size(2));
  const at::Tensor weight = at::full({x_RHE.size(2)}, scale / std::sqrt(width), at::kFloat);
  return rms_norm(x_RHE, weight, kLengthEps / width);
}

at::Tensor heads_of(const at::Tensor& x_RC, int64_t first, int64_t heads, int64_t dim) {
  return x_RC.narrow(1, first, heads * dim).view({x_RC.size(0), heads, dim});
}

float logistic(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

float softplus(float x) {
  return x > 20.0F ? x : std::log1p(std::exp(x));
}

void check_part(const DeltaInputs& in, const DeltaPart& part) {
  const std::vector<int64_t> shape = {in.v_RHE.size(1), in.k_RHE.size(2), in.v_RHE.size(2)};
  for (const at::Tensor* state : {&part.from, &part.to}) {
    expect_shape(*state, shape, "state");
    DF_ASSERT(state->is_contiguous(), "a state that is not dense");
  }
  DF_ASSERT(
      part.rows.begin >= 0 && part.rows.begin <= part.rows.end && part.rows.end <= in.v_RHE.size(0),
      "rows {}..{} of {}", part.rows.begin, part.rows.end, in.v_RHE.size(0));
}

/// y [R, H, E] or null.
void run(const DeltaInputs& in, std::span<const DeltaPart> parts, float* y) {
  const int64_t heads = in.v_RHE.size(1), value_dim = in.v_RHE.size(2), key_dim = in.k_RHE.size(2);
  const int64_t share = heads / in.k_RHE.size(1), size = key_dim * value_dim;
  int64_t rows = 0;
  for (const DeltaPart& part : parts) {
    check_part(in, part);
    rows += part.rows.end - part.rows.begin;
  }
  const auto kernel = kernels::current().delta_rule;
  const auto items = static_cast<int64_t>(parts.size()) * heads;
#pragma omp parallel for schedule(dynamic) if (rows * heads * size > kWorthThreads)
  for (int64_t item = 0; item < items; ++item) {
    const DeltaPart& part = parts[static_cast<size_t>(item / heads)];
    const int64_t head = item % heads, row = part.rows.begin, key_head = head / share;
    float* state = part.to.mutable_data_ptr<float>() + head * size;
    const float* from = part.from.const_data_ptr<float>() + head * size;
    if (from != state) std::memcpy(state, from, static_cast<size_t>(size) * sizeof(float));
    const auto at_row = [row](const at::Tensor& t, int64_t head_idx) {
      return t.const_data_ptr<float>() + row * t.stride(0) + head_idx * t.stride(1);
    };
    kernel({.q = at_row(in.q_RHE, key_head),
            .k = at_row(in.k_RHE, key_head),
            .v = at_row(in.v_RHE, head),
            .decay = at_row(in.decay_RH, head),
            .beta = at_row(in.beta_RH, head),
            .qk_stride = in.k_RHE.stride(0),
            .v_stride = in.v_RHE.stride(0),
            .gate_stride = in.beta_RH.stride(0),
            .y_stride = heads * value_dim,
            .rows = part.rows.end - part.rows.begin,
            .key_dim = key_dim,
            .value_dim = value_dim,
            .state = state,
            .y = y ? y + (row * heads + head) * value_dim : nullptr});
  }
}

}  // namespace

at::Tensor causal_conv_silu(const at::Tensor& x_RC, const at::Tensor& weight_TC,
                            std::span<const ConvPart> parts) {
  const int64_t taps = weight_TC.size(0), channels = weight_TC.size(1);
  expect_shape(x_RC, {-1, channels}, "rows of the convolution");
  DF_ASSERT(x_RC.stride(1) == 1 && weight_TC.is_contiguous(), "strides {}", x_RC.stride(1));
  at::Tensor y_RC = at::empty({x_RC.size(0), channels}, at::kFloat);
  const auto kernel = kernels::current().conv_silu;
  const auto count = static_cast<int64_t>(parts.size());
  for (const ConvPart& part : parts) expect_shape(part.before, {taps - 1, channels}, "before");
#pragma omp parallel for schedule(dynamic) if (x_RC.size(0) * channels * taps > kWorthThreads)
  for (int64_t i = 0; i < count; ++i) {
    const ConvPart& part = parts[static_cast<size_t>(i)];
    kernel({.before = part.before.const_data_ptr<float>(),
            .x = x_RC.const_data_ptr<float>() + part.rows.begin * x_RC.stride(0),
            .weight = weight_TC.const_data_ptr<float>(),
            .rows = part.rows.end - part.rows.begin,
            .channels = channels,
            .taps = taps,
            .x_stride = x_RC.stride(0),
            .y = y_RC.mutable_data_ptr<float>() + part.rows.begin * channels});
  }
  return y_RC;
}

DeltaInputs delta_inputs(const DeltaShape& shape, const at::Tensor& conv_RC, const at::Tensor& a_RH,
                         const at::Tensor& b_RH, const at::Tensor& rate_H,
                         const at::Tensor& dt_bias_H) {
  const int64_t rows = conv_RC.size(0), heads = shape.value_heads, qk = shape.qk_width();
  expect_shape(conv_RC, {-1, shape.conv_width()}, "conv_RC");
  expect_shape(a_RH, {rows, heads}, "a_RH");
  expect_shape(b_RH, {rows, heads}, "b_RH");
  DeltaInputs in;
  const double scale = 1 / std::sqrt(static_cast<double>(shape.key_dim));
  in.q_RHE = to_length(heads_of(conv_RC, 0, shape.key_heads, shape.key_dim), scale);
  in.k_RHE = to_length(heads_of(conv_RC, qk, shape.key_heads, shape.key_dim), 1);
  in.v_RHE = heads_of(conv_RC, 2 * qk, heads, shape.value_dim);
  in.decay_RH = at::empty({rows, heads}, at::kFloat);
  in.beta_RH = at::empty({rows, heads}, at::kFloat);
  const float *rate = rate_H.const_data_ptr<float>(), *bias = dt_bias_H.const_data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r) {
    const float* a = a_RH.const_data_ptr<float>() + r * a_RH.stride(0);
    const float* b = b_RH.const_data_ptr<float>() + r * b_RH.stride(0);
    float* decay = in.decay_RH.mutable_data_ptr<float>() + r * heads;
    float* beta = in.beta_RH.mutable_data_ptr<float>() + r * heads;
    for (int64_t h = 0; h < heads; ++h) {
      decay[h] = std::exp(-rate[h] * softplus(a[h] + bias[h]));
      beta[h] = logistic(b[h]);
    }
  }
  return in;
}

at::Tensor delta_rule(const DeltaInputs& inputs, std::span<const DeltaPart> parts) {
  at::Tensor y_RHE = at::empty(inputs.v_RHE.sizes(), at::kFloat);
  run(inputs, parts, y_RHE.mutable_data_ptr<float>());
  return y_RHE;
}

void advance_delta_states(const DeltaInputs& inputs, std::span<const DeltaPart> parts) {
  run(inputs, parts, nullptr);
}

}  // namespace dflash::nn
