#include "draft/kernels/tile_softmax.h"

#include "nn/kernels/transpose_avx512.h"

namespace dflash::draft::kernels {
namespace {

constexpr int64_t kLanes = 16, kStep = 32, kTile = 512;

/// e^x for x <= 0 to 3e-6, 0 far below. Of two operands the comparisons keep the second where one
/// is not a number, here as below: what is not a number stays so.
inline __m512 exponential(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-126.0F), x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)), 0);
  const __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693147181F), x);
  __m512 p = _mm512_set1_ps(1.0F / 120);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(p, n);
}

/// Lanes that see a key.
struct Lanes {
  Lanes(const SeenKeys& seen, int64_t row)
      : begin(_mm512_loadu_si512(seen.begin + row)), end(_mm512_loadu_si512(seen.end + row)) {}
  __mmask16 see(int64_t key) const {
    const __m512i at = _mm512_set1_epi32(static_cast<int32_t>(key));
    return _mm512_cmple_epi32_mask(begin, at) & _mm512_cmplt_epi32_mask(at, end);
  }
  __m512i begin, end;
};

/// Values of two neighbouring keys in pairs, bf16.
inline __m512i pairs(__m512 even, __m512 odd) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both);
}

bool softmax(const SoftmaxChunk& c) {
  const int64_t rows = c.seen.rows, steps = c.seen.keys / kStep;
  bool changed = false;
  for (int64_t row = 0; row < rows; row += kLanes) {
    const Lanes lanes(c.seen, row);
    const __m512 old_top = _mm512_loadu_ps(c.top + row);
    __m512 top = old_top;
    for (int64_t key = 0; key < c.seen.keys; ++key) {
      top = _mm512_mask_max_ps(top, lanes.see(c.seen.first + key),
                               _mm512_loadu_ps(c.scores + key * rows + row), top);
    }
    const __m512 factor = exponential(_mm512_sub_ps(old_top, top));
    changed |= _mm512_cmpneq_ps_mask(old_top, top) != 0;
    __m512 even_sum = _mm512_setzero_ps(), odd_sum = _mm512_setzero_ps();
    uint16_t* to = c.weights + row / kLanes * steps * kTile;
    for (int64_t key = 0; key < c.seen.keys; key += 2, to += kStep) {
      const float* scores = c.scores + key * rows + row;
      const __m512 even = _mm512_maskz_mov_ps(
          lanes.see(c.seen.first + key), exponential(_mm512_sub_ps(_mm512_loadu_ps(scores), top)));
      const __m512 odd =
          _mm512_maskz_mov_ps(lanes.see(c.seen.first + key + 1),
                              exponential(_mm512_sub_ps(_mm512_loadu_ps(scores + rows), top)));
      even_sum = _mm512_add_ps(even_sum, even), odd_sum = _mm512_add_ps(odd_sum, odd);
      _mm512_store_si512(to, pairs(even, odd));
    }
    const __m512 sum =
        _mm512_fmadd_ps(_mm512_loadu_ps(c.sum + row), factor, _mm512_add_ps(even_sum, odd_sum));
    _mm512_storeu_ps(c.top + row, top);
    _mm512_storeu_ps(c.sum + row, sum);
    _mm512_storeu_ps(c.factor + row, factor);
  }
  return changed;
}

/// 16 rows of one key.
struct Slope {
  Slope(const SoftmaxGradient& c, const Lanes& lanes, int64_t key, int64_t row) {
    const int64_t at = key * c.seen.rows + row;
    const __m512 score = _mm512_loadu_ps(c.scores + at), dweight = _mm512_loadu_ps(c.dweights + at);
    const __m512 below = _mm512_sub_ps(score, _mm512_loadu_ps(c.lse + row));
    const __mmask16 seen = lanes.see(c.seen.first + key);
    weight = _mm512_maskz_mov_ps(seen, exponential(_mm512_min_ps(_mm512_set1_ps(0.0F), below)));
    slope =
        _mm512_maskz_mul_ps(seen, weight, _mm512_sub_ps(dweight, _mm512_loadu_ps(c.delta + row)));
  }
  __m512 weight, slope;
};

void gradient(const SoftmaxGradient& c) {
  const int64_t rows = c.seen.rows, key_steps = c.seen.keys / kStep, row_steps = rows / kStep;
  for (int64_t step = 0; step < row_steps; ++step) {
    const int64_t row = step * kStep;
    const Lanes low(c.seen, row), high(c.seen, row + kLanes);
    for (int64_t key = 0; key < c.seen.keys; key += 2) {
      const Slope a(c, low, key, row), b(c, high, key, row + kLanes);
      const Slope e(c, low, key + 1, row), f(c, high, key + 1, row + kLanes);
      const int64_t left = (key / kLanes * row_steps + step) * kTile + key % kLanes * kStep;
      const auto both = [](__m512 first, __m512 second) {
        return (__m512i)_mm512_cvtne2ps_pbh(second, first);
      };
      _mm512_store_si512(c.weights_left + left, both(a.weight, b.weight));
      _mm512_store_si512(c.weights_left + left + kStep, both(e.weight, f.weight));
      _mm512_store_si512(c.slopes_left + left, both(a.slope, b.slope));
      _mm512_store_si512(c.slopes_left + left + kStep, both(e.slope, f.slope));
      uint16_t* right = c.slopes_right + 2 * step * key_steps * kTile + key / 2 * kStep;
      _mm512_store_si512(right, pairs(a.slope, e.slope));
      _mm512_store_si512(right + key_steps * kTile, pairs(b.slope, f.slope));
    }
  }
}

void scale_rows(float* values, int64_t width, int64_t rows, const float* factor) {
  for (int64_t d = 0; d < width; ++d) {
    for (int64_t r = 0; r < rows; r += kLanes) {
      float* at = values + d * rows + r;
      _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), _mm512_loadu_ps(factor + r)));
    }
  }
}

void deliver(const float* values, int64_t width, int64_t rows, const float* factor, int64_t count,
             float* const* to) {
  for (int64_t row = 0; row < count; row += kLanes) {
    const __m512 scale = _mm512_loadu_ps(factor + row);
    for (int64_t d = 0; d < width; d += kLanes) {
      __m512i block[16];
      for (int64_t i = 0; i < kLanes; ++i) {
        const float* from = values + (d + i) * rows + row;
        block[i] = (__m512i)_mm512_mul_ps(_mm512_loadu_ps(from), scale);
      }
      transpose(block);
      for (int64_t i = 0; i < kLanes && row + i < count; ++i) {
        _mm512_storeu_si512(to[row + i] + d, block[i]);
      }
    }
  }
}

}  // namespace

const TileSoftmaxKernels kTileSoftmax = {
    .softmax = softmax, .gradient = gradient, .scale_rows = scale_rows, .deliver = deliver};

}  // namespace dflash::draft::kernels
