#include "base/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace dflash {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::vector<std::string> closest_names(std::string_view name,
                                       const std::vector<std::string_view>& candidates,
                                       size_t count) {
  constexpr size_t kMaxCandidates = 10000, kMaxLength = 256;  // bounds the time of an error
  std::vector<std::pair<size_t, size_t>> ranked;
  for (size_t i = 0; i < std::min(candidates.size(), kMaxCandidates); ++i) {
    ranked.emplace_back(
        edit_distance(name.substr(0, kMaxLength), candidates[i].substr(0, kMaxLength)), i);
  }
  std::ranges::sort(ranked);
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(count, ranked.size()); ++i) {
    names.emplace_back(candidates[ranked[i].second]);
  }
  return names;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates) {
  const auto nearest = closest_names(name, candidates, 1);
  if (nearest.empty()) return "";
  // Two: letters that changed places count as two.
  const size_t allowed = std::min(std::max<size_t>(2, nearest[0].size() / 3), name.size() - 1);
  return name.empty() || edit_distance(name, nearest[0]) > allowed
             ? ""
             : fmt::format("; did you mean {}?", nearest[0]);
}

}  // namespace dflash
