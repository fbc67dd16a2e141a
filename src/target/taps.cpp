#include "target/taps.h"

#include <cmath>

#include "base/error.h"
#include "target/target.h"

namespace dflash::target {

std::vector<int64_t> default_taps(int64_t num_layers, int64_t num_taps) {
  if (num_taps < 1 || num_taps > num_layers) {
    fail("taps: expected 1 to {} taps for a target of {} layers, got {}", num_layers, num_layers,
         num_taps);
  }
  if (num_taps == 1) return {num_layers / 2};
  std::vector<int64_t> taps;
  for (int64_t i = 0; i < num_taps; ++i) {
    const double exact = 1.0 + static_cast<double>(i * (num_layers - 4)) / (num_taps - 1);
    // nearbyint rounds half to even, as the formula's origin does; std::round would not.
    const auto layer = static_cast<int64_t>(std::nearbyint(exact));
    if (layer < 0 || layer >= num_layers || (!taps.empty() && layer <= taps.back())) {
      fail("taps: the default rule gives no {} different layers of {}\n  hint: list the taps",
           num_taps, num_layers);
    }
    taps.push_back(layer);
  }
  return taps;
}

TapWriter::TapWriter(std::vector<int64_t> taps, int64_t rows, int64_t hidden_size,
                     int64_t num_layers)
    : taps_(std::move(taps)), hidden_size_(hidden_size) {
  for (const int64_t tap : taps_) {
    if (tap < -1 || tap >= num_layers) {
      fail(
          "taps: expected -1 (embedding) to {}, got {}\n  hint: a tap is the 0-based block whose "
          "output is taken",
          num_layers - 1, tap);
    }
  }
  if (!taps_.empty()) {
    taps_RF_ = at::empty({rows, static_cast<int64_t>(taps_.size()) * hidden_size}, at::kFloat);
  }
}

void TapWriter::take(int64_t layer, const at::Tensor& h_RD) {
  for (size_t i = 0; i < taps_.size(); ++i) {
    if (taps_[i] != layer) continue;
    taps_RF_.narrow(1, static_cast<int64_t>(i) * hidden_size_, hidden_size_).copy_(h_RD);
  }
}

}  // namespace dflash::target
