// Whether drafting pays: what the drafter gained beyond the text's own n-grams, by how much these
// knew, against what it cost. Only the time of a text depends on it, never the text.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace dflash::decode {

/// Tokens a pass that the drafter adds, for passes whose next token the n-grams know well, a little
/// or hardly.
class DraftGain {
 public:
  static constexpr int64_t kBins = 3;
  static int64_t bin_of(double known) { return known < 0.2 ? 0 : known < 0.6 ? 1 : 2; }

  /// The mean, and as much more as it may still be: few tries must not end the trying.
  double hoped(int64_t bin) const { return means_[bin] + 0.5 / std::sqrt(counts_[bin]); }
  void add(int64_t bin, double tokens) {
    constexpr double kMemory = 64;
    counts_[bin] = std::min(counts_[bin] + 1, kMemory);
    means_[bin] += (tokens - means_[bin]) / counts_[bin];
  }
  /// For a new sequence: the same means, soon outweighed.
  DraftGain as_prior() const {
    DraftGain prior = *this;
    for (double& count : prior.counts_) count = std::min(count, 8.0);
    return prior;
  }

 private:
  std::array<double, kBins> means_ = {0.8, 0.5, 0.3}, counts_ = {2, 2, 2};
};

/// How far a drafter's probabilities can be believed here: what it gave the next token's candidates
/// in sum, against how often the token was among them.
class Belief {
 public:
  double factor() const { return std::min(1.0, hits_ / mass_); }
  void add(double mass, bool hit) {
    mass_ += mass;
    hits_ += hit ? 1 : 0;
  }

 private:
  double mass_ = 3, hits_ = 3;
};

/// Rare tries while drafting does not pay: two passes, then twice as long a wait as before.
class Probes {
 public:
  /// Whether this pass drafts, given whether it should by what is known.
  bool decide(bool pays) {
    if (pays) {
      wait_ = kFirstWait;
      idle_ = left_ = 0;
      return true;
    }
    if (left_ > 0) return left_-- > 0;
    if (++idle_ < wait_) return false;
    idle_ = 0;
    wait_ = std::min(2 * wait_, kLastWait);
    left_ = kPasses - 1;
    return true;
  }

 private:
  static constexpr int64_t kFirstWait = 8, kLastWait = 256, kPasses = 2;
  int64_t wait_ = kFirstWait, idle_ = 0, left_ = 0;
};

/// Tokens a second of the last passes.
class Rate {
 public:
  void add(double tokens, double seconds) {
    constexpr double kKeep = 0.97;
    tokens_ = kKeep * tokens_ + tokens;
    seconds_ = kKeep * seconds_ + seconds;
  }
  double value() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }

 private:
  double tokens_ = 0, seconds_ = 0;
};

}  // namespace dflash::decode
