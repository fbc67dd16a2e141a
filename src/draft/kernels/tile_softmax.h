// What lies between the products of tile_attention.cpp: softmax over keys and its gradient, for
// scores [keys, rows], so that a lane is one query row and no sum crosses lanes. Rows come in
// multiples of 32, keys too; scores of what a row does not see are never read as numbers.
#pragma once

#include <cstdint>

namespace dflash::draft::kernels {

/// Rows whose every score so far was invisible have this as their maximum.
constexpr float kNothingSeen = -1e30F;

/// What every row sees: keys [begin, end) by their number in the whole, of which this chunk holds
/// [first, first + keys).
struct SeenKeys {
  const int32_t* begin = nullptr;  // [rows]
  const int32_t* end = nullptr;
  int64_t first = 0, keys = 0, rows = 0;
};

/// Takes a chunk into the running softmax: updates top and sum, writes factor = exp(old top - new
/// top) and the weights exp(score - top) as a right operand [keys, rows] (nn/kernels/tiles.h).
/// True when any factor is not 1.
struct SoftmaxChunk {
  SeenKeys seen;
  const float* scores = nullptr;  // [keys, rows]
  float *top = nullptr, *sum = nullptr, *factor = nullptr;
  uint16_t* weights = nullptr;
};

/// weight = exp(score - lse), slope = weight * (dweight - delta); both as left operands of `keys`
/// rows, the slopes also as a right operand.
struct SoftmaxGradient {
  SeenKeys seen;
  const float* scores = nullptr;    // [keys, rows]
  const float* dweights = nullptr;  // [keys, rows]
  const float *lse = nullptr, *delta = nullptr;
  uint16_t *weights_left = nullptr, *slopes_left = nullptr, *slopes_right = nullptr;
};

struct TileSoftmaxKernels {
  bool (*softmax)(const SoftmaxChunk& chunk);
  void (*gradient)(const SoftmaxGradient& chunk);
  /// values[d, r] *= factor[r] for `width` d.
  void (*scale_rows)(float* values, int64_t width, int64_t rows, const float* factor);
  /// to[r][d] = values[d, r] * factor[r] for the first `count` rows; width % 16 == 0.
  void (*deliver)(const float* values, int64_t width, int64_t rows, const float* factor,
                  int64_t count, float* const* to);
};

extern const TileSoftmaxKernels kTileSoftmax;

}  // namespace dflash::draft::kernels
