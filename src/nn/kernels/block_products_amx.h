// Products over weights that stay in the blocks of their file. A block is 32 k of one column, and
// so is one row of the left operand of the tile instruction: blocks are widened row by row into a
// tile of 16 columns x 32 k, which is multiplied with 16 rows of x as the right operand. Products
// and their order are those of product_tiles with the operands exchanged, so the bits are the same.
//
// For many rows a strip is widened once into the layout of bf16 weights, for product_tiles.
//
// A 4-bit block has 16 values: they are computed once (scale * 0..15 + least, rounded to bf16) and
// looked up 32 at a time. Included by the AMX kernel file; anonymous for the reason given in
// simd.h.
#pragma once

// First, for its pragmas.
#include "nn/kernels/transpose_avx512.h"

#include "nn/kernels/amx_products.h"

namespace {

using namespace dflash::nn::kernels;

constexpr int64_t kAhead = 4096;    // bytes of weights asked for ahead of their use
constexpr int kRing = 4, kLag = 2;  // tiles between widening and use: stores need time to land

/// Scales and leasts of one record as floats.
struct alignas(64) Scales {
  float scale[kTile], least[kTile];
};

template <bool kHalf>
inline __m512 load_scales(const uint8_t* from) {
  if constexpr (kHalf) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  } else {
    return _mm512_loadu_ps(from);
  }
}

template <int kBits, bool kLeast, bool kHalf>
struct Blocks {
  static constexpr int64_t kCodes = kBits * kTile * kStepK / 8;
  static constexpr int64_t kScales = kTile * (kHalf ? 2 : 4);
  static constexpr int64_t kRecord = kCodes + kScales * (kLeast ? 2 : 1);

  static void widen(const uint8_t* record, uint16_t* tile) {
    Scales scales;
    _mm512_store_ps(scales.scale, load_scales<kHalf>(record + kCodes));
    if constexpr (kLeast) {
      _mm512_store_ps(scales.least, load_scales<kHalf>(record + kCodes + kScales));
    }
    // Each is broadcast from memory below, which the load ports do for nothing; seeing through the
    // stores the compiler would shuffle registers instead.
    asm volatile("" ::: "memory");
    if constexpr (kBits == 4) {
      widen4(record, scales, tile);
    } else {
      widen8(record, scales, tile);
    }
  }

 private:
  static void widen4(const uint8_t* codes, const Scales& scales, uint16_t* tile) {
    const __m512 numbers = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i nibble = _mm512_set1_epi16(15);
    for (int group = 0; group < 4; ++group) {
      const __m512i words = _mm512_loadu_si512(codes + group * 64);
      const __m512i code[4] = {
          _mm512_and_si512(words, nibble), _mm512_and_si512(_mm512_srli_epi16(words, 4), nibble),
          _mm512_and_si512(_mm512_srli_epi16(words, 8), nibble), _mm512_srli_epi16(words, 12)};
      for (int i = 0; i < 4; ++i) {
        const int column = group * 4 + i;
        const __m512 values = _mm512_fmadd_ps(_mm512_set1_ps(scales.scale[column]), numbers,
                                              _mm512_set1_ps(scales.least[column]));
        const __m512i table = _mm512_castsi256_si512((__m256i)_mm512_cvtneps_pbh(values));
        _mm512_store_si512(tile + column * kStepK, _mm512_permutexvar_epi16(code[i], table));
      }
    }
  }

  static void widen8(const uint8_t* codes, const Scales& scales, uint16_t* tile) {
    for (int column = 0; column < kTile; ++column) {
      const __m512 scale = _mm512_set1_ps(scales.scale[column]);
      __m512 part[2];
      for (int i = 0; i < 2; ++i) {
        const auto* from = reinterpret_cast<const __m128i*>(codes + column * kStepK + i * 16);
        part[i] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
        if constexpr (kLeast) {
          part[i] = _mm512_fmadd_ps(part[i], scale, _mm512_set1_ps(scales.least[column]));
        } else {
          part[i] = _mm512_mul_ps(part[i], scale);
        }
      }
      _mm512_store_si512(tile + column * kStepK, (__m512i)_mm512_cvtne2ps_pbh(part[1], part[0]));
    }
  }
};

/// 32 k of a row as 16 pairs of bf16; `mask` has the k that are there.
inline __m512i load_pairs(const float* from, uint32_t mask) {
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/// A row alone: what stands in the other columns reaches only sums that nobody stores.
inline void pack_one_column(const float* x, int64_t k, uint32_t* to) {
  alignas(64) uint32_t pairs[16];
  for (int64_t first = 0; first < k; first += kStepK, to += kTileBf16 / 2) {
    const int64_t left = k - first;
    _mm512_store_si512(pairs, load_pairs(x + first, left >= kStepK ? ~0U : (1U << left) - 1));
    for (int i = 0; i < 16; ++i) to[i * 16] = pairs[i];
  }
}

/// a: [ceil(rows / 16)][steps][16 pairs of k][16 rows][2]
void pack_columns(const float* x, int64_t x_stride, int64_t rows, int64_t k, void* a) {
  const int64_t steps = steps_of(k);
  auto* to = static_cast<uint16_t*>(a);
  if (rows == 1) return pack_one_column(x, k, static_cast<uint32_t*>(a));
  for (int64_t first = 0; first < rows; first += kTile) {
    for (int64_t s = 0; s < steps; ++s, to += kTileBf16) {
      const int64_t left = k - s * kStepK;
      const uint32_t mask = left >= kStepK ? ~0U : (1U << left) - 1;
      __m512i pairs[16];
      for (int64_t r = 0; r < kTile; ++r) {
        const uint32_t seen = first + r < rows ? mask : 0;
        pairs[r] = load_pairs(x + (first + r) * x_stride + s * kStepK, seen);
      }
      transpose(pairs);
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * kStepK, pairs[i]);
    }
  }
}

/// Sums of a tile as [column][row]: turned, then stored as far as rows go.
void store_turned(const Product& p, int64_t row, int64_t tile, const float* sums) {
  const int64_t rows = p.rows - row < kTile ? p.rows - row : kTile;
  if (rows <= 2) {
    const __m512i lanes =
        _mm512_set_epi32(240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32, 16, 0);
    for (int64_t r = 0; r < rows; ++r) {
      store_row(p, row + r, tile, _mm512_i32gather_ps(lanes, sums + r, 4));
    }
    return;
  }
  __m512i turned[16];
  for (int i = 0; i < 16; ++i) turned[i] = _mm512_load_si512(sums + i * kTile);
  transpose(turned);
  for (int64_t r = 0; r < rows; ++r) store_row(p, row + r, tile, (__m512)turned[r]);
}

struct alignas(64) TurnedSums {
  float tile[4][kTile * kTile];
};

inline const uint16_t* right_block(const Product& p, int64_t row) {
  return static_cast<const uint16_t*>(p.a) + row / kTile * p.steps * kTileBf16;
}
inline const uint8_t* record_of(const Product& p, int64_t tile, int64_t step) {
  return static_cast<const uint8_t*>(p.b) + tile * p.tile_stride + step * p.step_stride;
}

template <int64_t kBytes>
inline void ask_ahead(const uint8_t* record) {
  for (int64_t at = 0; at < kBytes; at += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(record + kAhead + at), _MM_HINT_T0);
  }
}

/// One step of Strips x RowBlocks tiles of sums, 1 or 2 each.
template <int Strips, int RowBlocks>
inline void dots(const uint16_t* a0, const uint16_t* a1, const uint16_t* x0, const uint16_t* x1) {
  TILE_LOAD(6, x0);
  TILE_LOAD(4, a0);
  TILE_DOT(0, 4, 6);
  if constexpr (Strips > 1) {
    TILE_LOAD(5, a1);
    TILE_DOT(1, 5, 6);
  }
  if constexpr (RowBlocks > 1) {
    TILE_LOAD(7, x1);
    TILE_DOT(2, 4, 7);
    if constexpr (Strips > 1) TILE_DOT(3, 5, 7);
  }
}

inline void clear_sums() {
  TILE_ZERO(0);
  TILE_ZERO(1);
  TILE_ZERO(2);
  TILE_ZERO(3);
}

template <int Strips, int RowBlocks>
void store_sums(const Product& p, int64_t row, int64_t tile) {
  TurnedSums sums;
  TILE_STORE(0, sums.tile[0], int64_t{64});
  if constexpr (Strips > 1) TILE_STORE(1, sums.tile[1], int64_t{64});
  if constexpr (RowBlocks > 1) TILE_STORE(2, sums.tile[2], int64_t{64});
  if constexpr (Strips > 1 && RowBlocks > 1) TILE_STORE(3, sums.tile[3], int64_t{64});
  for (int block = 0; block < RowBlocks; ++block) {
    for (int strip = 0; strip < Strips; ++strip) {
      store_turned(p, row + block * kTile, tile + strip, sums.tile[block * 2 + strip]);
    }
  }
}

/// Widens on the way: every step once, for all rows.
template <class Format, int Strips, int RowBlocks>
void few_rows(const Product& p, int64_t tile) {
  alignas(64) uint16_t ring[Strips][kRing][kTileBf16];
  const uint16_t *x0 = right_block(p, 0), *x1 = x0 + p.steps * kTileBf16;
  clear_sums();
  for (int64_t s = 0; s < p.steps + kLag; ++s) {
    for (int i = 0; i < Strips && s < p.steps; ++i) {
      const uint8_t* record = record_of(p, tile + i, s);
      ask_ahead<Format::kRecord>(record);
      Format::widen(record, ring[i][s % kRing]);
    }
    if (s < kLag) continue;
    const int64_t used = s - kLag, at = used * kTileBf16;
    dots<Strips, RowBlocks>(ring[0][used % kRing], ring[Strips - 1][used % kRing], x0 + at,
                            x1 + at);
  }
  store_sums<Strips, RowBlocks>(p, 0, tile);
}

/// Widened tiles as bf16 weights have them: [16 pairs of k][16 columns][2].
template <class Format, int Strips>
void many_rows(const Product& p, int64_t tile) {
  alignas(64) uint16_t rows[kTileBf16];
  auto* to = static_cast<uint16_t*>(p.work);
  for (int64_t s = 0; s < p.steps; ++s) {
    for (int i = 0; i < Strips; ++i, to += kTileBf16) {
      const uint8_t* record = record_of(p, tile + i, s);
      ask_ahead<Format::kRecord>(record);
      Format::widen(record, rows);
      __m512i pairs[16];
      for (int r = 0; r < 16; ++r) pairs[r] = _mm512_load_si512(rows + r * kStepK);
      transpose(pairs);
      for (int r = 0; r < 16; ++r) _mm512_storeu_si512(to + r * kStepK, pairs[r]);
    }
  }
  Product widened = p;
  widened.b = p.work, widened.tile_stride = kTileBf16, widened.step_stride = Strips * kTileBf16;
  widened.columns =
      p.columns - tile * kTile < Strips * kTile ? p.columns - tile * kTile : Strips * kTile;
  widened.c = p.c + tile * kTile;
  widened.bias = p.bias ? p.bias + tile * kTile : nullptr;
  product_tiles(widened);
}

template <class Format, int Strips>
void strips(const Product& p, int64_t tile) {
  if (p.rows > kFewRows) return many_rows<Format, Strips>(p, tile);
  p.rows <= kTile ? few_rows<Format, Strips, 1>(p, tile) : few_rows<Format, Strips, 2>(p, tile);
}

template <class Format>
void all_strips(const Product& p) {
  const int64_t tiles = (p.columns + kTile - 1) / kTile;
  int64_t tile = 0;
  for (; tile + 2 <= tiles; tile += 2) strips<Format, 2>(p, tile);
  if (tile < tiles) strips<Format, 1>(p, tile);
}

void product_blocks(const Product& p, const BlockFormat& format) {
  if (format.bits == 4) {
    return format.half ? all_strips<Blocks<4, true, true>>(p)
                       : all_strips<Blocks<4, true, false>>(p);
  }
  if (format.with_least) {
    return format.half ? all_strips<Blocks<8, true, true>>(p)
                       : all_strips<Blocks<8, true, false>>(p);
  }
  return format.half ? all_strips<Blocks<8, false, true>>(p)
                     : all_strips<Blocks<8, false, false>>(p);
}

}  // namespace
