// Vectors of floats in the width of the including file's instruction set. Everything is in an
// anonymous namespace: each kernel file has its own copy, so the linker never mixes them.
#pragma once

#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>
#define DFLASH_LANES 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define DFLASH_LANES 8
#else
#define DFLASH_LANES 4
#endif

namespace {

constexpr int kLanes = DFLASH_LANES;
typedef float F __attribute__((vector_size(DFLASH_LANES * 4)));
typedef int32_t I __attribute__((vector_size(DFLASH_LANES * 4)));
typedef uint32_t U __attribute__((vector_size(DFLASH_LANES * 4)));

inline F load(const float* from) {
  F v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
inline void store(float* to, F v) {
  __builtin_memcpy(to, &v, sizeof v);
}
/// The first n < kLanes floats, zeros after.
inline F load_part(const float* from, int64_t n) {
  F v = {};
  for (int64_t i = 0; i < n; ++i) v[i] = from[i];
  return v;
}
inline void store_part(float* to, F v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = v[i];
}
inline F all(float value) {
  return value - F{};
}
inline I all_bits(int32_t value) {
  return value - I{};
}
inline F larger(F a, F b) {
  return a > b ? a : b;
}

/// a * b + c: fused where the CPU can, and then always.
inline F fma(F a, F b, F c) {
#if defined(__AVX512F__)
  return (F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (F)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

/// Lanes in a fixed tree.
inline float sum_lanes(F v) {
  float part[kLanes];
  store(part, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  }
  return part[0];
}
inline float max_lanes(F v) {
  float part[kLanes];
  store(part, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) part[i] = part[i] > part[i + width] ? part[i] : part[i + width];
  }
  return part[0];
}

/// e^x to 2 ulp for x <= 88; 0 below -87. Cody-Waite reduction, polynomial of degree 6.
inline F exponential(F x) {
  const F low = all(-87.0F);
  const I kept = x >= low;
  x = larger(x, low);
  x = x > all(88.0F) ? all(88.0F) : x;
  const F magic = all(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const F shifted = fma(x, all(1.44269504F), magic);
  const F n = shifted - magic;
  F r = fma(n, all(-0.693359375F), x);
  r = fma(n, all(2.12194440e-4F), r);
  F p = all(1.9875691500e-4F);
  p = fma(p, r, all(1.3981999507e-3F));
  p = fma(p, r, all(8.3334519073e-3F));
  p = fma(p, r, all(4.1665795894e-2F));
  p = fma(p, r, all(1.6666665459e-1F));
  p = fma(p, r, all(5.0000001201e-1F));
  p = fma(p, r * r, r) + all(1.0F);
  const I exponent = ((I)shifted - (I)magic) << 23;
  return (F)(((I)p + exponent) & kept);
}

}  // namespace
