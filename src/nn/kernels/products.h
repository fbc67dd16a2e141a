// Products in vector registers, for every instruction set without tiles: f32 weights, and bf16
// weights widened to f32 on the way (a bf16 is the upper half of a float). Included once by each
// kernel file; anonymous for the reason given in simd.h.
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/simd.h"

namespace {

using namespace dflash::nn::kernels;

constexpr int kVectors = kTile / kLanes;  // vectors of a tile

/// How many tiles a block of `rows` rows keeps in registers beside each other.
constexpr int tiles_beside(int rows) {
  const int registers = kLanes == 16 ? 24 : kLanes == 8 ? 12 : 8;
  const int fit = registers / (rows * kVectors);
  return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}
constexpr int kMaxRows = kLanes == 16 ? 6 : kLanes == 8 ? 6 : 2;
constexpr int64_t kRowsAtOnce = 96;

struct F32Weights {
  using Element = float;
  using Left = float;
  static constexpr int64_t kLeftStep = 1, kStepsAtOnce = 128;
  static const float* left(const Product& p, int64_t row) {
    return static_cast<const float*>(p.a) + row * p.a_stride;
  }
  template <int Rows, int Tiles>
  static void step(const float* const* a, int64_t k, const float* b, int64_t tile_stride,
                   F (&sum)[Rows][Tiles * kVectors]) {
    for (int t = 0; t < Tiles; ++t) {
      for (int v = 0; v < kVectors; ++v) {
        const F weight = load(b + t * tile_stride + v * kLanes);
        for (int r = 0; r < Rows; ++r) {
          sum[r][t * kVectors + v] = fma(all(a[r][k]), weight, sum[r][t * kVectors + v]);
        }
      }
    }
  }
};

struct Bf16Weights {
  using Element = uint16_t;
  using Left = float;
  static constexpr int64_t kLeftStep = kStepK, kStepsAtOnce = 8;
  static const float* left(const Product& p, int64_t row) {
    return static_cast<const float*>(p.a) + row * p.steps * kStepK;
  }
  template <int Rows, int Tiles>
  static void step(const float* const* a, int64_t k, const uint16_t* b, int64_t tile_stride,
                   F (&sum)[Rows][Tiles * kVectors]) {
    for (int pair = 0; pair < kStepK / 2; ++pair, k += 2) {
      for (int odd = 0; odd < 2; ++odd) {
        F weight[Tiles * kVectors];
        for (int v = 0; v < Tiles * kVectors; ++v) {
          weight[v] = half_of(
              b + v / kVectors * tile_stride + pair * 2 * kTile + v % kVectors * 2 * kLanes, odd);
        }
        for (int r = 0; r < Rows; ++r) {
          const F x = all(a[r][k + odd]);
          for (int v = 0; v < Tiles * kVectors; ++v) sum[r][v] = fma(x, weight[v], sum[r][v]);
        }
      }
    }
  }

 private:
  /// The even or odd k of a vector of pairs, as floats.
  static F half_of(const uint16_t* pairs, int odd) {
    U both;
    __builtin_memcpy(&both, pairs, sizeof both);
    return odd ? (F)(both & 0xffff0000U) : (F)(both << 16);
  }
};

/// The same for rows as they are, not rounded.
struct Bf16WeightsOfFloats : Bf16Weights {
  static const float* left(const Product& p, int64_t row) { return F32Weights::left(p, row); }
};

template <int Rows, int Vectors>
inline void store_sums(const Product& p, int64_t row, int64_t first_column,
                       const F (&sum)[Rows][Vectors]) {
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      const int64_t column = first_column + v * kLanes, left = p.columns - column;
      if (left <= 0) break;
      float* to = p.c + (row + r) * p.c_stride + column;
      F value = sum[r][v];
      const bool whole = left >= kLanes;
      if (p.bias) value += whole ? load(p.bias + column) : load_part(p.bias + column, left);
      if (p.add) value += whole ? load(to) : load_part(to, left);
      whole ? store(to, value) : store_part(to, value, left);
    }
  }
}

/// Steps [begin, end) of the sum; what came before them is in `kept`, and what comes out stays
/// there until the last step: [row - first_row][columns of a panel].
struct Part {
  int64_t begin, end, first_row;
  float* kept;
  const void* weights = nullptr;  // of the first of them, in place of the product's
};

template <class Weights, int Rows, int Tiles>
void block(const Product& p, const Part& part, int64_t row, int64_t tile) {
  constexpr int kWidth = Tiles * kVectors;
  const typename Weights::Left* a[Rows];
  for (int r = 0; r < Rows; ++r) a[r] = Weights::left(p, row + r);
  const auto* b = static_cast<const typename Weights::Element*>(part.weights ? part.weights : p.b) +
                  tile * p.tile_stride + (part.weights ? 0 : part.begin * p.step_stride);
  float* kept = part.kept + (row - part.first_row) * kPanel * kTile + tile % kPanel * kTile;
  F sum[Rows][kWidth] = {};
  for (int r = 0; part.begin > 0 && r < Rows; ++r) {
    for (int v = 0; v < kWidth; ++v) sum[r][v] = load(kept + r * kPanel * kTile + v * kLanes);
  }
  for (int64_t s = part.begin; s < part.end; ++s, b += p.step_stride) {
    Weights::template step<Rows, Tiles>(a, s * Weights::kLeftStep, b, p.tile_stride, sum);
  }
  if (part.end == p.steps) return store_sums<Rows, kWidth>(p, row, tile * kTile, sum);
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < kWidth; ++v) store(kept + r * kPanel * kTile + v * kLanes, sum[r][v]);
  }
}

/// The tiles [tile, end) for `Rows` rows, as many beside each other as registers allow.
template <class Weights, int Rows>
void strip(const Product& p, const Part& part, int64_t row, int64_t tile, int64_t end) {
  constexpr int kBeside = tiles_beside(Rows);
  for (; tile + kBeside <= end; tile += kBeside) block<Weights, Rows, kBeside>(p, part, row, tile);
  for (; tile < end; ++tile) block<Weights, Rows, 1>(p, part, row, tile);
}

template <class Weights, int Rows>
void rest(const Product& p, const Part& part, int64_t row, int64_t count, int64_t tile,
          int64_t end) {
  if constexpr (Rows > 0) {
    if (count == Rows) return strip<Weights, Rows>(p, part, row, tile, end);
    rest<Weights, Rows - 1>(p, part, row, count, tile, end);
  }
}

template <class Weights>
void add_part(const Product& p, const Part& part, int64_t end_row, int64_t tile, int64_t end) {
  int64_t row = part.first_row;
  for (; row + kMaxRows <= end_row; row += kMaxRows) {
    strip<Weights, kMaxRows>(p, part, row, tile, end);
  }
  rest<Weights, kMaxRows - 1>(p, part, row, end_row - row, tile, end);
}

/// Some rows times one panel, a part of the sums at a time: the weights of a part stay in the
/// nearest cache from one row to the next.
template <class Weights>
void rows_times_panel(const Product& p, int64_t first_row, int64_t end_row, int64_t tile,
                      int64_t end) {
  float kept[kRowsAtOnce * kPanel * kTile];
  for (int64_t begin = 0; begin < p.steps; begin += Weights::kStepsAtOnce) {
    const int64_t last = begin + Weights::kStepsAtOnce;
    const Part part = {begin, last < p.steps ? last : p.steps, first_row, kept};
    add_part<Weights>(p, part, end_row, tile, end);
  }
}

template <class Weights>
void product(const Product& p) {
  const int64_t tiles = (p.columns + kTile - 1) / kTile;
  for (int64_t tile = 0; tile < tiles; tile += kPanel) {
    const int64_t end = tile + kPanel < tiles ? tile + kPanel : tiles;
    for (int64_t row = 0; row < p.rows; row += kRowsAtOnce) {
      const int64_t end_row = row + kRowsAtOnce < p.rows ? row + kRowsAtOnce : p.rows;
      rows_times_panel<Weights>(p, row, end_row, tile, end);
    }
  }
}

/// For products that widen: floats that hold bf16 values, row-major, 32 steps_of(k) a row.
inline void pack_rows_widened(const float* x, int64_t x_stride, int64_t rows, int64_t k, void* a) {
  const int64_t width = steps_of(k) * kStepK;
  float* to = static_cast<float*>(a);
  for (int64_t r = 0; r < rows; ++r, to += width) {
    for (int64_t i = 0; i < k; ++i) {
      uint32_t bits;
      __builtin_memcpy(&bits, x + r * x_stride + i, sizeof bits);
      const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
      bits = is_nan ? 0x7fc00000U : (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
      __builtin_memcpy(to + i, &bits, sizeof bits);
    }
    for (int64_t i = k; i < width; ++i) to[i] = 0;
  }
}

inline void nothing() {}

}  // namespace
