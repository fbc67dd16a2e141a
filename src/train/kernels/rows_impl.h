// Bodies of the row kernels; included by one file an instruction set, inside an anonymous namespace
// so that the linker never merges copies built with different flags.
#pragma once

#include <bit>
#include <cstdint>

#include "train/kernels/rows.h"

namespace dflash::train::kernels {
namespace {

/// exp(x) for x <= 0, relative error < 2e-7 down to -87, where it stays (1e-38).
inline float exp_nonpositive(float x) {
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693145752F, kLn2Low = 1.42860677e-6F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  x = x > -87.0F ? x : -87.0F;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const int32_t power = (std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound) + 127)
                        << 23;
  return p * std::bit_cast<float>(power);
}

inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// Updates maximum and argmax (lowest index on ties); returns the factor for earlier results.
inline float take_max(const float* scores, int64_t columns, int64_t first_id, OnlineRow& row) {
  float max = scores[0];
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < columns; ++i) max = scores[i] > max ? scores[i] : max;
  if (!(max > row.max)) return 1.0F;
  int64_t index = 0;
  while (index + 1 < columns && scores[index] != max) ++index;
  const float factor = exp_nonpositive(row.max - max);
  row.max = max;
  row.argmax = first_id + index;
  row.sum *= factor;
  return factor;
}

float online_bf16(const float* scores, int64_t columns, int64_t first_id, OnlineRow& row,
                  uint16_t* out) {
  const float factor = take_max(scores, columns, first_id, row);
  const float max = row.max;
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < columns; ++i) {
    const float e = exp_nonpositive(scores[i] - max);
    sum += e;
    out[i] = to_bf16(e);
  }
  row.sum += sum;
  return factor;
}

float online_f32(float* scores, int64_t columns, int64_t first_id, OnlineRow& row) {
  const float factor = take_max(scores, columns, first_id, row);
  const float max = row.max;
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < columns; ++i) {
    const float e = exp_nonpositive(scores[i] - max);
    sum += e;
    scores[i] = e;
  }
  row.sum += sum;
  return factor;
}

void scale(float* values, int64_t count, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

void round_bf16(const float* values, int64_t count, uint16_t* out) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) out[i] = to_bf16(values[i]);
}

double sum_squares(const float* values, int64_t count) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

double muon_direction(const float* gradient, float* m, int64_t count, const Momentum& how,
                      float* direction) {
  const float momentum = how.momentum, factor = how.factor, ahead = factor / momentum;
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    m[i] = momentum * m[i] + factor * gradient[i];
    const float d = m[i] + ahead * gradient[i];
    direction[i] = d;
    sum += static_cast<double>(d) * static_cast<double>(d);
  }
  return sum;
}

constexpr RowKernels kTable = {online_bf16, online_f32,  scale,
                               round_bf16,  sum_squares, muon_direction};

}  // namespace
}  // namespace dflash::train::kernels
