#include "base/taps.h"

#include <cmath>

#include "base/error.h"

namespace dflash {

std::vector<int64_t> spread_taps(int64_t num_layers, int64_t num_taps) {
  if (num_taps == 1 && num_layers >= 1) return {num_layers / 2};
  if (num_taps < 1 || num_layers - 3 < num_taps) {
    fail("taps: expected 1 to {} for a target of {} layers, got {}\n  hint: name the taps yourself",
         std::max<int64_t>(1, num_layers - 3), num_layers, num_taps);
  }
  std::vector<int64_t> taps;
  for (int64_t i = 0; i < num_taps; ++i) {
    const double place = 1.0 + static_cast<double>(i) * static_cast<double>(num_layers - 4) /
                                   static_cast<double>(num_taps - 1);
    // nearbyint rounds halves to even, as the reference does; std::round would not.
    taps.push_back(static_cast<int64_t>(std::nearbyint(place)));
  }
  return taps;
}

}  // namespace dflash
