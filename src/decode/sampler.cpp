#include "decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace dflash::decode {
namespace {

struct Candidate {
  int64_t id = 0;
  double weight = 0.0;  // exp((logit - max) / temperature), not normalised
};

/// Higher weight first, lower index first on ties: the one order of top-k, top-p and argmax.
bool before(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

/// Lowest index of the largest logit; Error when none is a finite number.
int64_t argmax(std::span<const float> logits_V) {
  int64_t best = -1;
  for (size_t i = 0; i < logits_V.size(); ++i) {
    if (std::isnan(logits_V[i])) continue;
    if (best < 0 || logits_V[i] > logits_V[best]) best = static_cast<int64_t>(i);
  }
  if (best < 0 || !std::isfinite(logits_V[best])) {
    fail(
        "sampling: logits: expected a finite largest value, got {}\n"
        "  hint: the target's weights or its compute type produce NaN or infinity",
        best < 0 ? std::numeric_limits<double>::quiet_NaN() : double{logits_V[best]});
  }
  return best;
}

double total(const std::vector<Candidate>& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& c) { return sum + c.weight; });
}

void keep_top_k(std::vector<Candidate>& candidates, int64_t top_k) {
  if (top_k <= 0 || top_k >= static_cast<int64_t>(candidates.size())) return;
  std::nth_element(candidates.begin(), candidates.begin() + top_k - 1, candidates.end(), before);
  candidates.resize(top_k);
}

/// The smallest set of the likeliest tokens whose share reaches top_p.
void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  if (top_p >= 1.0) return;
  const double sum = total(candidates);
  // Tokens below this share weigh less than 1 - top_p together, so none of them is in the set:
  // dropping them first leaves little to sort.
  const double floor = sum * (1.0 - top_p) / static_cast<double>(candidates.size());
  std::erase_if(candidates, [floor](const Candidate& c) { return c.weight < floor; });
  std::sort(candidates.begin(), candidates.end(), before);
  double reached = 0.0;
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || reached < top_p * sum)) {
    reached += candidates[kept++].weight;
  }
  candidates.resize(kept);
}

/// What can be drawn, in index order. temperature > 0.
std::vector<Candidate> candidates_of(std::span<const float> logits_V, const Sampling& sampling) {
  const double largest = logits_V[argmax(logits_V)];
  std::vector<Candidate> candidates;
  candidates.reserve(logits_V.size());
  for (size_t i = 0; i < logits_V.size(); ++i) {
    const double weight = std::exp((logits_V[i] - largest) / sampling.temperature);
    if (weight > 0.0) candidates.push_back({static_cast<int64_t>(i), weight});  // drops NaN too
  }
  keep_top_k(candidates, sampling.top_k);
  keep_top_p(candidates, sampling.top_p);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return candidates;
}

}  // namespace

void check_sampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0.0) || !std::isfinite(sampling.temperature)) {
    fail("sampling: temperature: expected a finite number >= 0, got {}\n  hint: 0 is greedy",
         sampling.temperature);
  }
  if (sampling.top_k < 0) {
    fail("sampling: top-k: expected >= 0, got {}\n  hint: 0 keeps every token", sampling.top_k);
  }
  if (!(sampling.top_p > 0.0 && sampling.top_p <= 1.0)) {
    fail("sampling: top-p: expected a number in (0, 1], got {}\n  hint: 1 keeps every token",
         sampling.top_p);
  }
}

int64_t choose(std::span<const float> logits_V, const Sampling& sampling, int64_t position) {
  if (sampling.temperature == 0.0) return argmax(logits_V);
  const std::vector<Candidate> candidates = candidates_of(logits_V, sampling);
  const double mark =
      uniform01({sampling.seed, static_cast<uint64_t>(position)}) * total(candidates);
  double reached = 0.0;
  for (const Candidate& candidate : candidates) {
    reached += candidate.weight;
    if (reached > mark) return candidate.id;
  }
  return candidates.back().id;  // mark rounded up to the total
}

std::vector<double> distribution(std::span<const float> logits_V, const Sampling& sampling) {
  std::vector<double> probability_V(logits_V.size(), 0.0);
  if (sampling.temperature == 0.0) {
    probability_V[argmax(logits_V)] = 1.0;
    return probability_V;
  }
  const std::vector<Candidate> candidates = candidates_of(logits_V, sampling);
  const double sum = total(candidates);
  for (const Candidate& candidate : candidates)
    probability_V[candidate.id] = candidate.weight / sum;
  return probability_V;
}

}  // namespace dflash::decode
