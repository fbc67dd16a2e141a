// bf16 products by tiles: weights as the right operand. Included once by the AMX kernel file;
// anonymous for the reason given in simd.h.
#pragma once

#include "nn/kernels/amx_tiles.h"

namespace {

using namespace dflash::nn::kernels;

/// Sums of up to 2 x 2 or 1 x 4 tiles on their way to c.
struct alignas(64) Scratch {
  float tile[kPanel][kTile * kTile];
};

void store_tile(const Product& p, int64_t row, int64_t tile, const float* sums) {
  const int64_t rows = p.rows - row < kTile ? p.rows - row : kTile;
  for (int64_t r = 0; r < rows; ++r) {
    store_row(p, row + r, tile, _mm512_load_ps(sums + r * kTile));
  }
}

/// True when tile (row, tile) may be stored without a look at edges and additions.
bool stores_plainly(const Product& p, int64_t row, int64_t tile) {
  return !p.bias && !p.add && row + kTile <= p.rows && (tile + 1) * kTile <= p.columns;
}

#define STORE_SUM(t, at_row, at_tile)                                           \
  if (stores_plainly(p, at_row, at_tile)) {                                     \
    TILE_STORE(t, p.c + (at_row)*p.c_stride + (at_tile)*kTile, p.c_stride * 4); \
  } else {                                                                      \
    TILE_STORE(t, scratch.tile[t], int64_t{64});                                \
    store_tile(p, at_row, at_tile, scratch.tile[t]);                            \
  }

inline const uint16_t* left_block(const Product& p, int64_t row) {
  return static_cast<const uint16_t*>(p.a) + (row / kTile) * p.steps * kTileBf16;
}
inline const uint16_t* right_tile(const Product& p, int64_t tile) {
  return static_cast<const uint16_t*>(p.b) + tile * p.tile_stride;
}

/// Asks for the weights some steps ahead: the tile loads alone keep too few lines in flight.
inline void prefetch_tile(const uint16_t* tile) {
  constexpr int64_t kAhead = 8 * 1024;
  const char* from = reinterpret_cast<const char*>(tile) + kAhead;
  for (int line = 0; line < 16; ++line) _mm_prefetch(from + line * 64, _MM_HINT_T0);
}

/// One block of 16 rows, `Tiles` tiles beside each other.
template <int Tiles>
void one_row_block(const Product& p, int64_t row, int64_t tile) {
  Scratch scratch;
  const uint16_t* a = left_block(p, row);
  const uint16_t* b = right_tile(p, tile);
  TILE_ZERO(0);
  if constexpr (Tiles > 1) TILE_ZERO(1);
  if constexpr (Tiles > 2) TILE_ZERO(2);
  if constexpr (Tiles > 3) TILE_ZERO(3);
  for (int64_t s = 0; s < p.steps; ++s, a += kTileBf16, b += p.step_stride) {
    for (int t = 0; t < Tiles; ++t) prefetch_tile(b + t * p.tile_stride);
    TILE_LOAD(4, a);
    TILE_LOAD(5, b);
    TILE_DOT(0, 4, 5);
    if constexpr (Tiles > 1) {
      TILE_LOAD(6, b + p.tile_stride);
      TILE_DOT(1, 4, 6);
    }
    if constexpr (Tiles > 2) {
      TILE_LOAD(7, b + 2 * p.tile_stride);
      TILE_DOT(2, 4, 7);
    }
    if constexpr (Tiles > 3) {
      TILE_LOAD(5, b + 3 * p.tile_stride);
      TILE_DOT(3, 4, 5);
    }
  }
  STORE_SUM(0, row, tile);
  if constexpr (Tiles > 1) {
    STORE_SUM(1, row, tile + 1);
  }
  if constexpr (Tiles > 2) {
    STORE_SUM(2, row, tile + 2);
  }
  if constexpr (Tiles > 3) {
    STORE_SUM(3, row, tile + 3);
  }
}

/// Two blocks of 16 rows, two tiles: four loads for four products.
void two_row_blocks(const Product& p, int64_t row, int64_t tile) {
  Scratch scratch;
  const uint16_t *a0 = left_block(p, row), *a1 = left_block(p, row + kTile);
  const uint16_t *b0 = right_tile(p, tile), *b1 = right_tile(p, tile + 1);
  TILE_ZERO(0);
  TILE_ZERO(1);
  TILE_ZERO(2);
  TILE_ZERO(3);
  for (int64_t s = 0; s < p.steps; ++s) {
    if (row == 0) prefetch_tile(b0), prefetch_tile(b1);
    TILE_LOAD(4, a0);
    TILE_LOAD(6, b0);
    TILE_DOT(0, 4, 6);
    TILE_LOAD(7, b1);
    TILE_DOT(1, 4, 7);
    TILE_LOAD(5, a1);
    TILE_DOT(2, 5, 6);
    TILE_DOT(3, 5, 7);
    a0 += kTileBf16, a1 += kTileBf16;
    b0 += p.step_stride, b1 += p.step_stride;
  }
  STORE_SUM(0, row, tile);
  STORE_SUM(1, row, tile + 1);
  STORE_SUM(2, row + kTile, tile);
  STORE_SUM(3, row + kTile, tile + 1);
}

void strip_of_row_block(const Product& p, int64_t row, int64_t tile, int64_t end) {
  for (; tile + 4 <= end; tile += 4) one_row_block<4>(p, row, tile);
  if (end - tile == 3) one_row_block<3>(p, row, tile);
  if (end - tile == 2) one_row_block<2>(p, row, tile);
  if (end - tile == 1) one_row_block<1>(p, row, tile);
}

void product_tiles(const Product& p) {
  const int64_t tiles = (p.columns + kTile - 1) / kTile;
  for (int64_t tile = 0; tile < tiles; tile += kPanel) {
    const int64_t end = tile + kPanel < tiles ? tile + kPanel : tiles;
    const int64_t paired = end - (end - tile) % 2;
    const int64_t paired_rows = (p.rows + kTile - 1) / kTile / 2 * 2 * kTile;
    for (int64_t t = tile; t < paired; t += 2) {
      for (int64_t row = 0; row < paired_rows; row += 2 * kTile) two_row_blocks(p, row, t);
    }
    for (int64_t row = 0; row < paired_rows && paired < end; row += kTile) {
      strip_of_row_block(p, row, paired, end);
    }
    if (paired_rows < p.rows) strip_of_row_block(p, paired_rows, tile, end);
  }
}

}  // namespace
