// The tile instructions, written as assembly because g++ 12's intrinsics say nothing about the
// memory that they read and write. Tiles: 0-3 sums, 4-7 operands. Included once by each kernel file
// that has tiles; anonymous for the reason given in simd.h.
#pragma once

#include <immintrin.h>

#include "nn/kernels/kernels.h"

#define TILE_ZERO(t) asm volatile("tilezero %%tmm" #t ::: "memory")
#define TILE_LOAD(t, from) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"(int64_t{64}) : "memory")
#define TILE_STORE(t, to, stride_bytes) \
  asm volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"(stride_bytes) : "memory")
#define TILE_DOT(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

namespace {

using namespace dflash::nn::kernels;

/// One row of a tile of sums on its way to c.
inline void store_row(const Product& p, int64_t row, int64_t tile, __m512 value) {
  const int64_t column = tile * kTile, left = p.columns - column;
  const auto mask = static_cast<__mmask16>(left >= kTile ? 0xffff : (1 << left) - 1);
  float* to = p.c + row * p.c_stride + column;
  if (p.bias) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, p.bias + column));
  if (p.add) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, to));
  _mm512_mask_storeu_ps(to, mask, value);
}

}  // namespace
