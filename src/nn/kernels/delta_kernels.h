// Kernels of the gated delta net: output gate, causal convolution, delta rule. Included once by
// each kernel file. Every row is computed by itself in a fixed order: splitting rows over calls
// changes no bit.
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/row_kernels.h"
#include "nn/kernels/simd.h"

namespace {

void gate_row(const float* x, const float* gate, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_some(y + i, load_some(x + i, n - i) * logistic(load_some(gate + i, n - i)), n - i);
  }
}

void conv_silu(const ConvRows& c) {
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.channels; i += kLanes) {
      const int64_t left = c.channels - i;
      F sum = {};
      for (int64_t t = 0; t < c.taps; ++t) {
        const int64_t row = r + t - (c.taps - 1);
        const float* from =
            row < 0 ? c.before + (row + c.taps - 1) * c.channels : c.x + row * c.x_stride;
        sum = fma(load_some(from + i, left), load_some(c.weight + t * c.channels + i, left), sum);
      }
      store_some(c.y + r * c.channels + i, sum * logistic(sum), left);
    }
  }
}

/// Columns of the state are independent: N vectors of them go through all rows before the next,
/// so that their part of the state stays in the nearest cache.
template <int N>
void delta_columns(const DeltaRows& d, int64_t first) {
  const int64_t left = N > 1 ? kLanes : d.value_dim - first;  // only a single one may be ragged
  const auto get = [&](const float* from, int n) { return load_some(from + n * kLanes, left); };
  float* state = d.state + first;
  for (int64_t r = 0; r < d.rows; ++r) {
    const float *q = d.q + r * d.qk_stride, *k = d.k + r * d.qk_stride;
    const float* v = d.v + r * d.v_stride + first;
    const F decay = all(d.decay[r * d.gate_stride]), beta = all(d.beta[r * d.gate_stride]);
    F delta[N] = {}, out[N] = {};
    for (int64_t i = 0; i < d.key_dim; ++i) {
      for (int n = 0; n < N; ++n) {
        delta[n] = fma(get(state + i * d.value_dim, n) * decay, all(k[i]), delta[n]);
      }
    }
    for (int n = 0; n < N; ++n) delta[n] = beta * (get(v, n) - delta[n]);
    for (int64_t i = 0; i < d.key_dim; ++i) {
      float* row = state + i * d.value_dim;
      for (int n = 0; n < N; ++n) {
        const F next = fma(all(k[i]), delta[n], get(row, n) * decay);
        store_some(row + n * kLanes, next, left);
        out[n] = fma(next, all(q[i]), out[n]);
      }
    }
    if (!d.y) continue;
    for (int n = 0; n < N; ++n) store_some(d.y + r * d.y_stride + first + n * kLanes, out[n], left);
  }
}

void delta_rule(const DeltaRows& d) {
  constexpr int64_t kWide = 4 * kLanes;
  int64_t first = 0;
  for (; first + kWide <= d.value_dim; first += kWide) delta_columns<4>(d, first);
  for (; first < d.value_dim; first += kLanes) delta_columns<1>(d, first);
}

}  // namespace
