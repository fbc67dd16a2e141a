// Coefficients of the quintic Newton-Schulz iteration X <- (a I + b G + c G^2) X, G = X X^T.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace dflash::train {

struct Quintic {
  double a, b, c;
};

/// Nearest to 1 over singular values 0.003 .. 1 by four iterations (tools/minimax_quintics.py;
/// after Amsel et al. 2025): lift weak directions as far as Jordan's five.
constexpr std::array<Quintic, 4> kMinimax = {{{8.2193, -23.3377, 16.6268},
                                              {3.9690, -2.8424, 0.5167},
                                              {3.4626, -2.4982, 0.4802},
                                              {2.5408, -1.8889, 0.4482}}};
constexpr Quintic kOfJordan = {3.4445, -4.7750, 2.0315};
constexpr std::array<Quintic, 5> kJordan = {kOfJordan, kOfJordan, kOfJordan, kOfJordan, kOfJordan};

/// By their number: 4 (kMinimax) or 5 (kJordan).
inline std::span<const Quintic> quintics(int64_t steps) {
  DF_ASSERT(steps == 4 || steps == 5, "steps={}", steps);
  return steps == 4 ? std::span<const Quintic>(kMinimax) : std::span<const Quintic>(kJordan);
}

}  // namespace dflash::train
