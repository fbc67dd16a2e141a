#include "data/loops.h"

#include <algorithm>
#include <vector>

namespace dflash::data {
namespace {

/// Calls found(begin, period, length) for every maximal stretch in which each token equals the one
/// `period` before it; the first copy of the unit is part of the stretch.
template <typename Found>
void stretches(std::span<const int64_t> ids, int64_t period, Found found) {
  const auto size = static_cast<int64_t>(ids.size());
  int64_t matches = 0;
  for (int64_t t = period; t <= size; ++t) {
    if (t < size && ids[t] == ids[t - period]) {
      ++matches;
    } else {
      if (matches > 0) found(t - matches - period, period, matches + period);
      matches = 0;
    }
  }
}

}  // namespace

std::optional<Loop> find_loop(std::span<const int64_t> ids, const LoopOptions& options) {
  const auto size = static_cast<int64_t>(ids.size());
  std::vector<uint8_t> covered(ids.size(), 0);
  Loop longest, tail;
  const int64_t max_period =
      std::min(options.max_period, size / std::max<int64_t>(options.min_copies, 2));
  for (int64_t period = 1; period <= max_period; ++period) {
    stretches(ids, period, [&](int64_t begin, int64_t unit, int64_t length) {
      if (length < unit * options.min_copies) return;
      std::fill_n(covered.begin() + begin, length, uint8_t{1});
      const Loop loop{begin + length == size, begin, unit, length, 0};
      if (length > longest.length) longest = loop;
      if (loop.at_tail && length > tail.length) tail = loop;
    });
  }
  if (longest.length == 0) return std::nullopt;
  const double share = static_cast<double>(std::count(covered.begin(), covered.end(), 1)) /
                       static_cast<double>(size);
  const bool tail_loops = tail.length >= options.min_tail_tokens;
  const bool mostly_loops = size >= options.min_share_tokens && share > options.max_share;
  if (!tail_loops && !mostly_loops) return std::nullopt;
  Loop& found = tail_loops ? tail : longest;
  found.share = share;
  return found;
}

}  // namespace dflash::data
