// Row kernels of the fused head: one pass for maximum, one for exp, sum and rounding. Plain loops
// that the compiler vectorises, built once an instruction set and picked at run time.
#pragma once

#include <cstdint>

namespace dflash::train::kernels {

/// Running softmax of one row over the vocabulary: largest score so far, its lowest index, and the
/// sum of exp(score - largest).
struct OnlineRow {
  float max = -3.0e38F;
  float sum = 0.0F;
  int64_t argmax = -1;
};

/// Nesterov's momentum of a gradient g: m <- momentum m + factor g.
struct Momentum {
  float momentum = 0, factor = 0;
};

struct RowKernels {
  /// Takes `columns` more scores (of ids first_id..) into `row` and writes exp(score - row.max)
  /// rounded to bf16. Returns exp(old max - new max), by which earlier results must be scaled.
  float (*online_bf16)(const float* scores, int64_t columns, int64_t first_id, OnlineRow& row,
                       uint16_t* out);
  /// The same, exp written over the scores in f32.
  float (*online_f32)(float* scores, int64_t columns, int64_t first_id, OnlineRow& row);
  /// values[i] *= factor
  void (*scale)(float* values, int64_t count, float factor);
  /// f32 -> bf16, to nearest even.
  void (*round_bf16)(const float* values, int64_t count, uint16_t* out);
  /// Sum of squares in double; NaN or infinite when any value is.
  double (*sum_squares)(const float* values, int64_t count);
  /// Updates m; direction = m + (factor / momentum) g. Returns the sum of its squares.
  double (*muon_direction)(const float* gradient, float* m, int64_t count, const Momentum& how,
                           float* direction);
};

const RowKernels& row_kernels_generic();
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();

/// The best for this CPU.
const RowKernels& row_kernels();

}  // namespace dflash::train::kernels
