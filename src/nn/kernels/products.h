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

struct F32Weights {
  using Element = float;
  using Left = float;
  static constexpr int64_t kLeftStep = 1;
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
  static constexpr int64_t kLeftStep = kStepK;
  static const float* left(const Product& p, int64_t row) {
    return static_cast<const float*>(p.a) + row * p.steps * kStepK;
  }
  template <int Rows, int Tiles>
  static void step(const float* const* a, int64_t k, const uint16_t* b, int64_t tile_stride,
                   F (&sum)[Rows][Tiles * kVectors]) {
    for (int pair = 0; pair < kStepK / 2; ++pair, k += 2) {
      for (int t = 0; t < Tiles; ++t) {
        for (int v = 0; v < kVectors; ++v) {
          U both;
          __builtin_memcpy(&both, b + t * tile_stride + pair * 2 * kTile + v * 2 * kLanes,
                           sizeof both);
          const F even = (F)(both << 16), odd = (F)(both & 0xffff0000U);
          for (int r = 0; r < Rows; ++r) {
            F& to = sum[r][t * kVectors + v];
            to = fma(all(a[r][k]), even, to);
            to = fma(all(a[r][k + 1]), odd, to);
          }
        }
      }
    }
  }
};

template <int Rows, int Tiles>
inline void store_block(const Product& p, int64_t row, int64_t tile,
                        const F (&sum)[Rows][Tiles * kVectors]) {
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Tiles * kVectors; ++v) {
      const int64_t column = tile * kTile + v * kLanes, left = p.columns - column;
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

template <class Weights, int Rows, int Tiles>
void block(const Product& p, int64_t row, int64_t tile) {
  const typename Weights::Left* a[Rows];
  for (int r = 0; r < Rows; ++r) a[r] = Weights::left(p, row + r);
  const auto* b = static_cast<const typename Weights::Element*>(p.b) + tile * p.tile_stride;
  F sum[Rows][Tiles * kVectors] = {};
  for (int64_t s = 0; s < p.steps; ++s, b += p.step_stride) {
    Weights::template step<Rows, Tiles>(a, s * Weights::kLeftStep, b, p.tile_stride, sum);
  }
  store_block<Rows, Tiles>(p, row, tile, sum);
}

/// The tiles [tile, end) for `Rows` rows, as many beside each other as registers allow.
template <class Weights, int Rows>
void strip(const Product& p, int64_t row, int64_t tile, int64_t end) {
  constexpr int kBeside = tiles_beside(Rows);
  for (; tile + kBeside <= end; tile += kBeside) block<Weights, Rows, kBeside>(p, row, tile);
  for (; tile < end; ++tile) block<Weights, Rows, 1>(p, row, tile);
}

template <class Weights, int Rows>
void rest(const Product& p, int64_t row, int64_t tile, int64_t end) {
  if constexpr (Rows > 0) {
    if (p.rows - row == Rows) return strip<Weights, Rows>(p, row, tile, end);
    rest<Weights, Rows - 1>(p, row, tile, end);
  }
}

template <class Weights>
void product(const Product& p) {
  const int64_t tiles = (p.columns + kTile - 1) / kTile;
  for (int64_t tile = 0; tile < tiles; tile += kPanel) {
    const int64_t end = tile + kPanel < tiles ? tile + kPanel : tiles;
    int64_t row = 0;
    for (; row + kMaxRows <= p.rows; row += kMaxRows) strip<Weights, kMaxRows>(p, row, tile, end);
    rest<Weights, kMaxRows - 1>(p, row, tile, end);
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
