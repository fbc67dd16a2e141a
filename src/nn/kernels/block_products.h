// Products of f32 rows over weights that stay in the blocks of their file, codes in lanes
// (kernels.h): each vector of weights is widened to f32 right before its use. What widening gives
// is exact, and the order over k is product_f32's, so the bits are those over the widened weights.
// For few rows in registers; for more into the nearest cache, some k at a time.
// Included once by each f32_blocks file; anonymous for the reason given in
// simd.h.
#pragma once

// g++ 12 takes the undefined lanes of its own intrinsics for ours.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "nn/kernels/kernels.h"
#include "nn/kernels/products.h"

namespace {

using namespace dflash::nn::kernels;

constexpr int64_t kStepsAtOnce = 8;
constexpr int64_t kLanesAhead = 4096;               // bytes of weights asked for ahead of their use
constexpr int kWholeRows = 3;                       // whose sums run over all steps at once
constexpr int kMostLaneRows = kLanes == 4 ? 4 : 8;  // whose sums stay in registers

/// Vectors of columns whose sums lie beside each other for so many rows.
constexpr int vectors_beside(int rows) {
  if (kLanes == 16) return rows <= 3 ? 4 : 2;
  return rows <= 3 ? 2 : 1;
}

inline F load_halves(const uint8_t* from) {
#if defined(__AVX512F__)
  return (F)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__AVX2__)
  return (F)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  F out;
  for (int i = 0; i < kLanes; ++i) {
    _Float16 half;
    __builtin_memcpy(&half, from + i * 2, sizeof half);
    out[i] = static_cast<float>(half);
  }
  return out;
#endif
}

/// Codes of one vector of columns, one k after the other, from the beginning of a line of 64 bytes.
template <int kBits>
struct LaneCodes;

template <>
struct LaneCodes<4> {
  static constexpr int64_t kLine = 8;  // k
  U words;
  LaneCodes() = default;
  LaneCodes(const uint8_t* line, int64_t vector) {
    __builtin_memcpy(&words, line + vector * kLanes * 4, sizeof words);
  }
  F next() {
#if defined(__AVX512F__)
    const __m512 numbers = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const F code = (F)_mm512_permutexvar_ps((__m512i)words, numbers);  // reads the low four bits
#else
    const F code = __builtin_convertvector((I)(words & 15U), F);
#endif
    words >>= 4;
    return code;
  }
};

template <>
struct LaneCodes<8> {
  static constexpr int64_t kLine = 4;
  const uint8_t* at;
  LaneCodes() = default;
  LaneCodes(const uint8_t* line, int64_t vector) : at(line + vector * kLanes) {}
  F next() {
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const F code = (F)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
    const F code = (F)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
#else
    F code;
    for (int i = 0; i < kLanes; ++i) code[i] = static_cast<int8_t>(at[i]);
#endif
    at += kTile;
    return code;
  }
};

/// Scales of one vector of columns of one record.
template <int kBits, bool kLeast>
struct LaneBlock {
  using Codes = LaneCodes<kBits>;
  static constexpr int64_t kLines = kStepK / Codes::kLine, kScales = kLines * 64;
  F scale, least;

  LaneBlock() = default;
  LaneBlock(const uint8_t* record, int64_t vector, bool half) {
    const int64_t size = half ? 2 : 4;
    const uint8_t* from = record + kScales + vector * kLanes * size;
    scale = get(from, half);
    if constexpr (kLeast) least = get(from + kTile * size, half);
  }
  F value(F code) const {
    if constexpr (kLeast) return fma(scale, code, least);
    return scale * code;
  }

 private:
  static F get(const uint8_t* from, bool half) {
    return half ? load_halves(from) : load(reinterpret_cast<const float*>(from));
  }
};

/// Rows of the left operand by few registers: one in four has a pointer of its own.
template <int Rows>
struct LeftRows {
  const float* group[(Rows + 3) / 4];
  int64_t stride;
  explicit LeftRows(const Product& p) : stride(p.a_stride) {
    for (int g = 0; g < (Rows + 3) / 4; ++g) {
      group[g] = static_cast<const float*>(p.a) + g * 4 * stride;
    }
  }
  F at(int row, int64_t k) const { return all(group[row / 4][row % 4 * stride + k]); }
};

inline void ask_for(const uint8_t* record, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(record + at);
}

/// Adds the steps [begin, end) to the sums of `Vectors` vectors from `first` on.
template <class Block, int Rows, int Vectors>
inline void add_steps(const Product& p, const BlockFormat& format, int64_t first, int64_t begin,
                      int64_t end, F (&sum)[Rows][Vectors]) {
  const LeftRows<Rows> a(p);
  const int64_t record_bytes = format.record_bytes();
  // The next part while this one is multiplied, or a little ahead where all steps are one.
  const int64_t ahead = Rows <= kWholeRows ? kLanesAhead : kStepsAtOnce * p.step_stride;
  const uint8_t* record[Vectors];
  for (int v = 0; v < Vectors; ++v) {
    record[v] = static_cast<const uint8_t*>(p.b) + (first + v) / kVectors * p.tile_stride +
                begin * p.step_stride;
  }
  for (int64_t k = begin * kStepK; k < end * kStepK;) {
    Block block[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      if ((first + v) % kVectors == 0) ask_for(record[v] + ahead, record_bytes);
      block[v] = Block(record[v], (first + v) % kVectors, format.half);
    }
    for (int64_t line = 0; line < Block::kLines; ++line, k += Block::Codes::kLine) {
      typename Block::Codes codes[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        codes[v] = typename Block::Codes(record[v] + line * 64, (first + v) % kVectors);
      }
#pragma GCC unroll 8
      for (int64_t i = 0; i < Block::Codes::kLine; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
          const F weight = block[v].value(codes[v].next());
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) sum[r][v] = fma(a.at(r, k + i), weight, sum[r][v]);
        }
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) record[v] += p.step_stride;
  }
}

/// All rows times all vectors of the panel, some steps at a time, so that what is read of the rows
/// stays in the nearest cache from one vector to the next.
template <class Block, int Rows>
void lane_sums(const Product& p, const BlockFormat& format) {
  constexpr int kMost = kPanel * kVectors, kBeside = vectors_beside(Rows);
  const int64_t vectors = (p.columns + kTile - 1) / kTile * kVectors;
  const int64_t part = Rows <= kWholeRows ? p.steps : kStepsAtOnce;
  F kept[kMost][Rows];  // sums so far
  const auto some = [&]<int Vectors>(int64_t first, int64_t begin) {
    const int64_t end = begin + part < p.steps ? begin + part : p.steps;
    F sum[Rows][Vectors] = {};
    for (int r = 0; begin > 0 && r < Rows; ++r) {
      for (int v = 0; v < Vectors; ++v) sum[r][v] = kept[first + v][r];
    }
    add_steps<Block, Rows, Vectors>(p, format, first, begin, end, sum);
    if (end == p.steps) return store_sums<Rows, Vectors>(p, 0, first * kLanes, sum);
    for (int r = 0; r < Rows; ++r) {
      for (int v = 0; v < Vectors; ++v) kept[first + v][r] = sum[r][v];
    }
  };
  for (int64_t begin = 0; begin < p.steps; begin += part) {
    int64_t first = 0;
    for (; first + kBeside <= vectors; first += kBeside) {
      some.template operator()<kBeside>(first, begin);
    }
    for (; first < vectors; ++first) some.template operator()<1>(first, begin);
  }
}

template <class Block, int Rows>
void lane_rows(const Product& p, const BlockFormat& format) {
  if constexpr (Rows > 0) {
    if (p.rows == Rows) return lane_sums<Block, Rows>(p, format);
    lane_rows<Block, Rows - 1>(p, format);
  }
}

/// Steps [begin, end) of all columns, widened: for each k the vectors beside each other.
template <class Block>
void widen_lanes(const Product& p, bool half, int64_t begin, int64_t end, float* to) {
  const int64_t vectors = (p.columns + kTile - 1) / kTile * kVectors, width = vectors * kLanes;
  for (int64_t s = begin; s < end; ++s, to += kStepK * width) {
    for (int64_t v = 0; v < vectors; ++v) {
      const uint8_t* record =
          static_cast<const uint8_t*>(p.b) + v / kVectors * p.tile_stride + s * p.step_stride;
      if (v % kVectors == 0) ask_for(record + (end - begin) * p.step_stride, p.tile_stride);
      const Block block(record, v % kVectors, half);
      float* at = to + v * kLanes;
      for (int64_t line = 0; line < Block::kLines; ++line) {
        typename Block::Codes codes(record + line * 64, v % kVectors);
        for (int64_t i = 0; i < Block::Codes::kLine; ++i, at += width) {
          store(at, block.value(codes.next()));
        }
      }
    }
  }
}

/// A few steps at a time are widened for many rows, whose sums so far wait in `kept`.
template <class Block>
void many_rows(const Product& p, const BlockFormat& format) {
  constexpr int64_t kSteps = F32Weights::kStepsAtOnce / kStepK;
  alignas(64) float widened[kSteps * kStepK * kPanel * kTile], kept[kRowsAtOnce * kPanel * kTile];
  const int64_t tiles = (p.columns + kTile - 1) / kTile;
  Product wide = p;
  wide.steps = p.steps * kStepK, wide.tile_stride = kTile, wide.step_stride = tiles * kTile;
  for (int64_t row = 0; row < p.rows; row += kRowsAtOnce) {
    const int64_t end_row = row + kRowsAtOnce < p.rows ? row + kRowsAtOnce : p.rows;
    for (int64_t begin = 0; begin < p.steps; begin += kSteps) {
      const int64_t end = begin + kSteps < p.steps ? begin + kSteps : p.steps;
      widen_lanes<Block>(p, format.half, begin, end, widened);
      add_part<F32Weights>(wide, {begin * kStepK, end * kStepK, row, kept, widened}, end_row, 0,
                           tiles);
    }
  }
}

template <class Block>
void lane_product(const Product& p, const BlockFormat& format) {
  if (p.rows > kMostLaneRows) return many_rows<Block>(p, format);
  lane_rows<Block, kMostLaneRows>(p, format);
}

void product_lanes(const Product& p, const BlockFormat& format) {
  if (format.bits == 4) return lane_product<LaneBlock<4, true>>(p, format);
  format.with_least ? lane_product<LaneBlock<8, true>>(p, format)
                    : lane_product<LaneBlock<8, false>>(p, format);
}

}  // namespace
