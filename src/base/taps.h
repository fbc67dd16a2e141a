// Which blocks of a target are tapped when nobody says so. MODELS.md 4.3, recipe R-CAP-1.
#pragma once

#include <cstdint>
#include <vector>

namespace dflash {

/// `num_taps` block numbers of a target of `num_layers`: round-half-to-even(1 + i (T-4)/(n-1)), one
/// tap: T/2. Error when the target is too small for that many different taps.
std::vector<int64_t> spread_taps(int64_t num_layers, int64_t num_taps);

}  // namespace dflash
