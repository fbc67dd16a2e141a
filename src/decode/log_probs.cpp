#include "decode/log_probs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace dflash::decode {
namespace {

double log_sum_exp(std::span<const float> logits_V) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float logit : logits_V) largest = std::max(largest, double{logit});
  double sum = 0;
  for (const float logit : logits_V) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

}  // namespace

TokenLogProbs log_probs(std::span<const float> logits_V, int64_t token, int64_t num_top) {
  const int64_t vocab = static_cast<int64_t>(logits_V.size());
  DF_ASSERT(token >= 0 && token < vocab, "token={} of {}", token, vocab);
  const double norm = log_sum_exp(logits_V);
  TokenLogProbs result;
  result.log_prob = logits_V[token] - norm;
  if (num_top == 0) return result;
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < vocab; ++id) {
    if (std::isfinite(logits_V[id])) ids.push_back(id);
  }
  const auto end = ids.begin() + std::min<int64_t>(num_top, static_cast<int64_t>(ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](int64_t a, int64_t b) {
    return logits_V[a] != logits_V[b] ? logits_V[a] > logits_V[b] : a < b;
  });
  for (auto id = ids.begin(); id != end; ++id) result.top.push_back({*id, logits_V[*id] - norm});
  return result;
}

}  // namespace dflash::decode
