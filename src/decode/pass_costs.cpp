#include "decode/pass_costs.h"

#include <algorithm>
#include <cmath>
#include <ctime>

namespace dflash::decode {

double thread_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void RunningCost::add(double seconds) {
  if (last_.size() < kKept) last_.push_back(seconds);
  last_[next_++ % kKept] = seconds;
  std::vector<double> sorted = last_;
  std::ranges::sort(sorted);
  value_ = sorted[sorted.size() / 4];
}

int64_t PassCosts::widest_alike(int64_t rows) {
  for (const int64_t kind : {1, 2, 3, 4, 6, 8, 12}) {
    if (rows <= kind) return kind;
  }
  return (rows + 15) / 16 * 16;
}

void PassCosts::add(int64_t rows, double seconds) {
  const int64_t kind = widest_alike(rows);
  costs_[kind].add(seconds);
  const double now = costs_[kind].value();
  for (auto& [other, cost] : costs_) {
    if (other > kind || (other < kind && cost.value() > now)) cost.lean(now);
  }
}

/// Passes of one row, as seen on a small target: with tiles attention and activations grow, in
/// vector registers the products do.
double PassCosts::usual(int64_t rows) const {
  const double kind = static_cast<double>(widest_alike(rows));
  if (!tiles_) return 1 + 0.17 * (kind - 1);
  return kind <= 16 ? 1 + 0.1 * std::log2(kind) : 0.7 + 0.7 * kind / 16;
}

double PassCosts::of(int64_t rows) const {
  const int64_t kind = widest_alike(rows);
  const auto wider = costs_.upper_bound(kind);
  if (wider != costs_.begin()) {
    const auto& [known, cost] = *std::prev(wider);
    return cost.value() * (usual(kind) / usual(known));
  }
  if (wider == costs_.end()) return usual(kind);
  return wider->second.value() * static_cast<double>(kind) / static_cast<double>(wider->first);
}

}  // namespace dflash::decode
