// Rows of floats -> blocks of 16 rows x 32 bf16, the left operand of the CPU's own bf16 products.
// Included once by each kernel file that has them; anonymous for the reason given in simd.h.
#pragma once

#include <immintrin.h>

#include "nn/kernels/kernels.h"

namespace {

using namespace dflash::nn::kernels;

inline __m512i to_bf16(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/// a: [ceil(rows / 16)][steps][16][32]
void pack_rows_bf16(const float* x, int64_t x_stride, int64_t rows, int64_t k, void* a) {
  const int64_t steps = steps_of(k), padded = round_up(rows, kTile);
  uint16_t* block = static_cast<uint16_t*>(a);
  for (int64_t r = 0; r < padded; ++r) {
    uint16_t* to = block + (r / kTile) * steps * kTileBf16 + (r % kTile) * kStepK;
    const float* from = x + r * x_stride;
    for (int64_t s = 0; s < steps; ++s, to += kTileBf16) {
      const int64_t left = r < rows ? k - s * kStepK : 0;
      if (left >= kStepK) {
        const __m512 low = _mm512_loadu_ps(from + s * kStepK);
        const __m512 high = _mm512_loadu_ps(from + s * kStepK + 16);
        _mm512_storeu_si512(to, to_bf16(low, high));
        continue;
      }
      const uint32_t mask = left > 0 ? (1U << left) - 1 : 0;
      const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from + s * kStepK);
      const __m512 high =
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + s * kStepK + 16);
      _mm512_storeu_si512(to, to_bf16(low, high));
    }
  }
}

}  // namespace
