// Products of bf16 matrices by AMX for training, where both operands change every step: packing of
// either operand, plain or transposed, and the product. Raw pointers and extents, one thread, no
// Torch; only to be called where cpu_isa() is kAmx. The order of every sum is fixed by its length.
//
//   left operand  [rows, k]     blocks of 16 rows x 32 k:     [rows / 16][k / 32][16][32]
//   right operand [k, columns]  tiles of 32 k x 16 columns:   [columns / 16][k / 32][16][16][2]
// Both are padded with zeros to whole blocks (tile_elements).
#pragma once

#include <cstdint>

#include "nn/kernels/kernels.h"

namespace dflash::nn::kernels {

/// Elements of a packed operand, either side.
static inline constexpr int64_t tile_elements(int64_t rows, int64_t k) {
  return round_up(rows, kTile) * round_up(k, kStepK);
}

/// Rows of f32 or bf16 values with a dense last dimension.
struct TileSource {
  const void* data = nullptr;
  bool is_bf16 = false;
  int64_t stride = 0;  // values between rows
  int64_t rows = 0, columns = 0;
};

/// Blocks or tiles [begin, end) of the operand; `out` is always where block 0 goes.
struct TileShare {
  int64_t begin = 0, end = 0;
};

struct TileProduct {
  const uint16_t* left = nullptr;
  const uint16_t* right = nullptr;
  int64_t left_block = 0, right_tile = 0;  // elements between blocks, between tiles
  int64_t steps = 0;                       // of 32 k
  int64_t rows = 0, columns = 0;
  float* c = nullptr;
  int64_t c_stride = 0;
  bool add = false;  // c += instead of c =
};

struct TileKernels {
  /// Around a thread's use of `product`.
  void (*enter)();
  void (*leave)();
  /// source = the left operand, rows of k.
  void (*left)(const TileSource& source, TileShare blocks, uint16_t* out);
  /// source = the left operand transposed, k rows.
  void (*left_transposed)(const TileSource& source, TileShare blocks, uint16_t* out);
  /// source = the right operand, k rows.
  void (*right)(const TileSource& source, TileShare tiles, uint16_t* out);
  /// source = the right operand transposed, rows of k.
  void (*right_transposed)(const TileSource& source, TileShare tiles, uint16_t* out);
  /// A left operand of `rows` rows and `columns` k as a right operand whose k are those rows.
  void (*right_of_left)(const uint16_t* left, int64_t rows, int64_t columns, TileShare tiles,
                        uint16_t* out);
  void (*product)(const TileProduct& product);
  /// Rows [16 * block, 16 * block + 16) of c [size, size]: what lies left of the diagonal block,
  /// and below in it, from the other side of the diagonal.
  void (*mirror)(float* c, int64_t stride, int64_t size, int64_t block);
};

extern const TileKernels kTileKernels;

}  // namespace dflash::nn::kernels
