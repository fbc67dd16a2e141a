// Tiles 0-3 are sums, 4-5 left, 6-7 right.
#include "nn/kernels/tiles.h"

// First, for its pragmas.
#include "nn/kernels/transpose_avx512.h"

#include "nn/kernels/amx_tiles.h"

/// Sums that are added to, from where they lie.
#define SUM_LOAD(t, from, stride_bytes) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"(int64_t{stride_bytes}) : "memory")

namespace dflash::nn::kernels {
namespace {

void enter() {
  kAmxKernels.enter();
}

void leave() {
  kAmxKernels.leave();
}

/// Columns [column, column + 32) of a row as bf16; zeros outside the source.
template <bool kBf16>
inline __m512i load_row(const TileSource& s, int64_t row, int64_t column) {
  if (row >= s.rows || column >= s.columns) return _mm512_setzero_si512();
  const int64_t left = s.columns - column;
  if constexpr (kBf16) {
    const uint16_t* from = static_cast<const uint16_t*>(s.data) + row * s.stride + column;
    if (left >= kStepK) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi16((1U << left) - 1, from);
  } else {
    const float* from = static_cast<const float*>(s.data) + row * s.stride + column;
    if (left >= kStepK) {
      return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
    }
    const uint32_t mask = (1U << left) - 1;
    const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
    const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  }
}

inline void store_tile(const __m512i r[16], uint16_t* out) {
  for (int i = 0; i < 16; ++i) _mm512_store_si512(out + i * kStepK, r[i]);
}

/// Two rows of 32 columns as pairs: columns 0-15, columns 16-31.
inline void interleave(__m512i even, __m512i odd, __m512i& low, __m512i& high) {
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i at_low = _mm512_load_si512(kLow);
  const __m512i at_high = _mm512_add_epi16(at_low, _mm512_set1_epi16(16));
  low = _mm512_permutex2var_epi16(even, at_low, odd);
  high = _mm512_permutex2var_epi16(even, at_high, odd);
}

template <bool kBf16, bool kTransposed>
void rows_of_k(const TileSource& s, TileShare share, uint16_t* out) {
  const int64_t steps = steps_of(s.columns);
  for (int64_t b = share.begin; b < share.end; ++b) {
    for (int64_t step = 0; step < steps; ++step) {
      __m512i tile[16];
      for (int r = 0; r < 16; ++r) tile[r] = load_row<kBf16>(s, b * kTile + r, step * kStepK);
      if constexpr (kTransposed) transpose(tile);
      store_tile(tile, out + (b * steps + step) * kTileBf16);
    }
  }
}

/// Two neighbouring tiles of 16 columns from 32 rows given by `row(i)`.
template <bool kTransposed, typename Row>
inline void two_column_tiles(const Row& row, uint16_t* low_out, uint16_t* high_out) {
  __m512i low[16], high[16];
  for (int p = 0; p < 16; ++p) interleave(row(2 * p), row(2 * p + 1), low[p], high[p]);
  if constexpr (kTransposed) transpose(low), transpose(high);
  if (low_out) store_tile(low, low_out);
  if (high_out) store_tile(high, high_out);
}

/// Pairs of tiles are made together, so a share that begins or ends inside one makes half of it.
template <typename Make>
inline void for_column_pairs(TileShare share, int64_t steps, uint16_t* out, const Make& make) {
  for (int64_t pair = share.begin / 2; 2 * pair < share.end; ++pair) {
    for (int64_t step = 0; step < steps; ++step) {
      uint16_t* low = out + (2 * pair * steps + step) * kTileBf16;
      uint16_t* high = low + steps * kTileBf16;
      make(pair, step, 2 * pair >= share.begin ? low : nullptr,
           2 * pair + 1 < share.end ? high : nullptr);
    }
  }
}

template <bool kBf16, bool kTransposed>
void k_rows(const TileSource& s, TileShare share, uint16_t* out) {
  for_column_pairs(
      share, steps_of(s.rows), out, [&](int64_t pair, int64_t step, uint16_t* low, uint16_t* high) {
        two_column_tiles<kTransposed>(
            [&](int i) { return load_row<kBf16>(s, step * kStepK + i, pair * 32); }, low, high);
      });
}

void left(const TileSource& s, TileShare share, uint16_t* out) {
  s.is_bf16 ? rows_of_k<true, false>(s, share, out) : rows_of_k<false, false>(s, share, out);
}
void left_transposed(const TileSource& s, TileShare share, uint16_t* out) {
  s.is_bf16 ? k_rows<true, true>(s, share, out) : k_rows<false, true>(s, share, out);
}
void right(const TileSource& s, TileShare share, uint16_t* out) {
  s.is_bf16 ? k_rows<true, false>(s, share, out) : k_rows<false, false>(s, share, out);
}
void right_transposed(const TileSource& s, TileShare share, uint16_t* out) {
  s.is_bf16 ? rows_of_k<true, true>(s, share, out) : rows_of_k<false, true>(s, share, out);
}

void right_of_left(const uint16_t* from, int64_t rows, int64_t columns, TileShare share,
                   uint16_t* out) {
  const int64_t from_steps = steps_of(columns), blocks = (rows + kTile - 1) / kTile;
  for_column_pairs(share, steps_of(rows), out,
                   [&](int64_t pair, int64_t step, uint16_t* low, uint16_t* high) {
                     two_column_tiles<false>(
                         [&](int i) {
                           const int64_t block = 2 * step + i / 16;
                           if (block >= blocks) return _mm512_setzero_si512();
                           return _mm512_load_si512(from + (block * from_steps + pair) * kTileBf16 +
                                                    i % 16 * kStepK);
                         },
                         low, high);
                   });
}

/// Sums of 2 x 2 tiles on their way between c and the registers, where c has no room for whole
/// ones.
struct alignas(64) Edge {
  float tile[kTile * kTile];

  static __mmask16 mask(const TileProduct& p, int64_t tile) {
    const int64_t left = p.columns - tile * kTile;
    return static_cast<__mmask16>(left >= kTile ? 0xffff : (1 << left) - 1);
  }
  void fetch(const TileProduct& p, int64_t block, int64_t tile_idx) {
    for (int64_t r = 0; r < kTile; ++r) {
      const int64_t row = block * kTile + r;
      const __m512 v =
          row < p.rows
              ? _mm512_maskz_loadu_ps(mask(p, tile_idx), p.c + row * p.c_stride + tile_idx * kTile)
              : _mm512_setzero_ps();
      _mm512_store_ps(tile + r * kTile, v);
    }
  }
  void deliver(const TileProduct& p, int64_t block, int64_t tile_idx) const {
    for (int64_t r = 0; r < kTile && block * kTile + r < p.rows; ++r) {
      _mm512_mask_storeu_ps(p.c + (block * kTile + r) * p.c_stride + tile_idx * kTile,
                            mask(p, tile_idx), _mm512_load_ps(tile + r * kTile));
    }
  }
};

bool is_whole(const TileProduct& p, int64_t block, int64_t tile) {
  return (block + 1) * kTile <= p.rows && (tile + 1) * kTile <= p.columns;
}

#define SUM_BEGIN(t, block, tile_idx)                                                 \
  if (!p.add) {                                                                       \
    TILE_ZERO(t);                                                                     \
  } else if (is_whole(p, block, tile_idx)) {                                          \
    SUM_LOAD(t, p.c + (block)*kTile * p.c_stride + (tile_idx)*kTile, p.c_stride * 4); \
  } else {                                                                            \
    edge.fetch(p, block, tile_idx);                                                   \
    SUM_LOAD(t, edge.tile, 64);                                                       \
  }
#define SUM_END(t, block, tile_idx)                                                     \
  if (is_whole(p, block, tile_idx)) {                                                   \
    TILE_STORE(t, p.c + (block)*kTile * p.c_stride + (tile_idx)*kTile, p.c_stride * 4); \
  } else {                                                                              \
    TILE_STORE(t, edge.tile, int64_t{64});                                              \
    edge.deliver(p, block, tile_idx);                                                   \
  }

/// kRows blocks times kColumns tiles, each 1 or 2.
template <int kRows, int kColumns>
void sums(const TileProduct& p, int64_t block, int64_t tile) {
  Edge edge;
  const uint16_t *a0 = p.left + block * p.left_block, *a1 = a0 + p.left_block;
  const uint16_t *b0 = p.right + tile * p.right_tile, *b1 = b0 + p.right_tile;
  SUM_BEGIN(0, block, tile);
  if constexpr (kColumns > 1) {
    SUM_BEGIN(1, block, tile + 1);
  }
  if constexpr (kRows > 1) {
    SUM_BEGIN(2, block + 1, tile);
  }
  if constexpr (kRows > 1 && kColumns > 1) {
    SUM_BEGIN(3, block + 1, tile + 1);
  }
  for (int64_t s = 0; s < p.steps; ++s) {
    TILE_LOAD(4, a0);
    TILE_LOAD(6, b0);
    TILE_DOT(0, 4, 6);
    if constexpr (kColumns > 1) {
      TILE_LOAD(7, b1);
      TILE_DOT(1, 4, 7);
    }
    if constexpr (kRows > 1) {
      TILE_LOAD(5, a1);
      TILE_DOT(2, 5, 6);
    }
    if constexpr (kRows > 1 && kColumns > 1) TILE_DOT(3, 5, 7);
    a0 += kTileBf16, a1 += kTileBf16, b0 += kTileBf16, b1 += kTileBf16;
  }
  SUM_END(0, block, tile);
  if constexpr (kColumns > 1) {
    SUM_END(1, block, tile + 1);
  }
  if constexpr (kRows > 1) {
    SUM_END(2, block + 1, tile);
  }
  if constexpr (kRows > 1 && kColumns > 1) {
    SUM_END(3, block + 1, tile + 1);
  }
}

void product(const TileProduct& p) {
  const int64_t blocks = (p.rows + kTile - 1) / kTile, tiles = (p.columns + kTile - 1) / kTile;
  int64_t tile = 0;
  for (; tile + 2 <= tiles; tile += 2) {
    int64_t block = 0;
    for (; block + 2 <= blocks; block += 2) sums<2, 2>(p, block, tile);
    if (block < blocks) sums<1, 2>(p, block, tile);
  }
  if (tile == tiles) return;
  int64_t block = 0;
  for (; block + 2 <= blocks; block += 2) sums<2, 1>(p, block, tile);
  if (block < blocks) sums<1, 1>(p, block, tile);
}

void mirror(float* c, int64_t stride, int64_t size, int64_t block) {
  const int64_t row = block * kTile, rows = row + kTile <= size ? kTile : size - row;
  const auto have = static_cast<__mmask16>((1U << rows) - 1);
  for (int64_t column = 0; column <= row; column += kTile) {
    __m512i tile[16];
    for (int64_t i = 0; i < kTile; ++i) {
      const float* from = c + (column + i) * stride + row;
      tile[i] = column + i < size ? _mm512_maskz_loadu_epi32(have, from) : _mm512_setzero_si512();
    }
    transpose(tile);
    for (int64_t i = 0; i < rows; ++i) {
      const auto below = static_cast<__mmask16>(column < row ? 0xffff : (1U << i) - 1);
      _mm512_mask_storeu_epi32(c + (row + i) * stride + column, below, tile[i]);
    }
  }
}

}  // namespace

const TileKernels kTileKernels = {.enter = enter,
                                  .leave = leave,
                                  .left = left,
                                  .left_transposed = left_transposed,
                                  .right = right,
                                  .right_transposed = right_transposed,
                                  .right_of_left = right_of_left,
                                  .product = product,
                                  .mirror = mirror};

}  // namespace dflash::nn::kernels
