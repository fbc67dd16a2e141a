// The target's choice at one position: argmax, or a sample whose randomness is keyed by (seed,
// position), so that it does not depend on drafts, batches or order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dflash::decode {

struct Sampling {
  double temperature = 0.0;  // 0: greedy (lowest index on ties)
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // in (0, 1]
  uint64_t seed = 0;
};

/// Error when a value is out of range.
void check_sampling(const Sampling& sampling);

/// Token for absolute `position` from its logits (f32; -inf = impossible). Temperature first, then
/// top-k, then top-p, then inverse CDF in index order.
int64_t choose(std::span<const float> logits_V, const Sampling& sampling, int64_t position);

/// The distribution `choose` draws from (tests, statistics).
std::vector<double> distribution(std::span<const float> logits_V, const Sampling& sampling);

}  // namespace dflash::decode
