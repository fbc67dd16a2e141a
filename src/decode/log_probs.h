// Log-probabilities of committed tokens: the target's own distribution as its logits give it,
// before temperature, top-k and top-p, so that they do not depend on how a token was drawn.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace dflash::decode {

struct TokenLogProbs {
  double log_prob = 0;                          // natural logarithm
  std::vector<std::pair<int64_t, double>> top;  // the likeliest ids, best first, ties by id
};

/// Of `token` in [0, V) and of the `num_top` likeliest ids (fewer where the rest is impossible),
/// from f32 logits of which at least one is finite; summed in f64.
TokenLogProbs log_probs(std::span<const float> logits_V, int64_t token, int64_t num_top);

}  // namespace dflash::decode
