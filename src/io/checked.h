// Sizes that come from files: every sum and product is checked before use.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace dflash::io {

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// Product of the dimensions as a signed 64-bit number (1 for a scalar); nothing when one is
/// negative or any partial product overflows, even if a later dimension is zero.
inline std::optional<int64_t> checked_numel(std::span<const int64_t> shape) {
  int64_t numel = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(numel, dim, &numel)) return std::nullopt;
  }
  return numel;
}

}  // namespace dflash::io
