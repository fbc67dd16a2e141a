// Is one arm really better than another on the same prompts? Paired bootstrap over prompts, and
// Holm's correction for the number of arms. Numbers only.
#pragma once

#include <cstdint>
#include <vector>

namespace dflash::doctor {

/// Sum of scores and number of anchors of each prompt, in the prompts' order.
struct PromptScores {
  std::vector<double> sum_P;
  std::vector<int64_t> count_P;

  /// Pooled over prompts: sum of sums / sum of counts.
  double mean() const;
};

struct Comparison {
  double difference = 0;     // mean(arm) - mean(base)
  double low = 0, high = 0;  // 95 % interval of the difference
  double p = 1;  // one-sided: how often a resample of prompts has no gain, at least 2^-prompts
};

/// Resamples whole prompts, the same ones for both arms, `resamples` times; keyed by seed. Prompts
/// without an anchor in both arms are left out. Asserts equal numbers of prompts.
Comparison compare_paired(const PromptScores& arm, const PromptScores& base, int64_t resamples,
                          uint64_t seed);

/// Prompts that it takes before one of `arms` arms can be named at level `alpha`: 2^-prompts, times
/// the arms, must not exceed it.
int64_t prompts_needed(size_t arms, double alpha);

/// Holm's step-down: adjusted p-values in the order given, each at most 1.
std::vector<double> holm(const std::vector<double>& p);

}  // namespace dflash::doctor
