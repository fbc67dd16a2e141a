#include "doctor/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace dflash::doctor {

double PromptScores::mean() const {
  const double sum = std::accumulate(sum_P.begin(), sum_P.end(), 0.0);
  const int64_t count = std::accumulate(count_P.begin(), count_P.end(), int64_t{0});
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

Comparison compare_paired(const PromptScores& arm, const PromptScores& base, int64_t resamples,
                          uint64_t seed) {
  DF_ASSERT(arm.sum_P.size() == base.sum_P.size(), "{} and {} prompts", arm.sum_P.size(),
            base.sum_P.size());
  std::vector<size_t> asked;  // prompts without an anchor are no evidence
  for (size_t p = 0; p < arm.sum_P.size(); ++p) {
    if (arm.count_P[p] > 0 || base.count_P[p] > 0) asked.push_back(p);
  }
  const size_t prompts = asked.size();
  Comparison result{.difference = arm.mean() - base.mean()};
  if (prompts == 0) return result;
  std::vector<double> differences;
  int64_t without_gain = 0;
  for (int64_t r = 0; r < resamples; ++r) {
    double sums[2] = {0, 0}, counts[2] = {0, 0};
    for (size_t i = 0; i < prompts; ++i) {
      const size_t p = asked[uniform_below(prompts, {seed, static_cast<uint64_t>(r), i})];
      sums[0] += arm.sum_P[p];
      sums[1] += base.sum_P[p];
      counts[0] += static_cast<double>(arm.count_P[p]);
      counts[1] += static_cast<double>(base.count_P[p]);
    }
    if (counts[0] == 0 || counts[1] == 0) continue;
    differences.push_back(sums[0] / counts[0] - sums[1] / counts[1]);
    without_gain += differences.back() <= 0 ? 1 : 0;
  }
  if (differences.empty()) return result;
  const auto drawn = static_cast<double>(differences.size());
  result.p = (1 + static_cast<double>(without_gain)) / (1 + drawn);
  // Where every prompt happens to gain no resample loses, however few they are: chance alone does
  // that once in 2^prompts.
  result.p = std::max(result.p, std::pow(0.5, static_cast<double>(prompts)));
  std::sort(differences.begin(), differences.end());
  result.low = differences[static_cast<size_t>(0.025 * (drawn - 1))];
  result.high = differences[static_cast<size_t>(0.975 * (drawn - 1))];
  return result;
}

int64_t prompts_needed(size_t arms, double alpha) {
  return static_cast<int64_t>(std::ceil(std::log2(static_cast<double>(arms) / alpha)));
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    largest = std::max(largest, p[order[i]] * static_cast<double>(p.size() - i));
    adjusted[order[i]] = std::min(1.0, largest);
  }
  return adjusted;
}

}  // namespace dflash::doctor
