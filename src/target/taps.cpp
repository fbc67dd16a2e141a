#include "target/taps.h"

#include "base/error.h"
#include "base/taps.h"
#include "target/target.h"

namespace dflash::target {

std::vector<int64_t> default_taps(int64_t num_layers, int64_t num_taps) {
  return spread_taps(num_layers, num_taps);
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
