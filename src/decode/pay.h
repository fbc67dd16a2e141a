// Whether drafting pays: what the drafter adds to the text's own n-grams, by how much these know,
// against what it costs. Only the time of a text depends on it, never the text.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace dflash::decode {

/// What the drafter adds where the n-grams know nothing: by its own calibrated probabilities, which
/// tell far more of a pass than what was accepted in it. Sums of the last passes; where the n-grams
/// know half of the next token, the drafter adds about half.
class DraftGain {
 public:
  double tokens() const { return tokens_ / unknown_; }
  /// That wider passes take longer, drafting apart; in passes without drafts.
  double passes() const { return passes_ / unknown_; }
  void add(double unknown, double tokens, double passes) {
    const double keep = 1 - 0.06 * unknown;
    tokens_ = keep * tokens_ + tokens;
    passes_ = keep * passes_ + passes;
    unknown_ = keep * unknown_ + unknown;
  }
  /// For a new sequence: the same, soon outweighed.
  DraftGain as_prior() const {
    const double share = std::min(1.0, 4 / unknown_);
    DraftGain prior;
    prior.tokens_ = share * tokens_, prior.passes_ = share * passes_;
    prior.unknown_ = share * unknown_;
    return prior;
  }

 private:
  double tokens_ = 2, passes_ = 0, unknown_ = 2;
};

/// How far a drafter's probabilities can be believed here, by slot: what it gave the candidates for
/// the next token in sum, against how often the token was among them, where all before it was
/// right.
class Belief {
 public:
  double factor(size_t slot) const { return std::min(1.0, of(slot).hits / of(slot).mass); }
  void add(size_t slot, double mass, bool hit) {
    of(slot).mass += mass;
    of(slot).hits += hit ? 1 : 0;
  }
  /// For a new sequence: as much, soon outweighed.
  Belief as_prior() const {
    constexpr double kMass = 4;
    Belief prior = *this;
    for (Sums& sums : prior.sums_) {
      const double share = std::min(1.0, kMass / sums.mass);
      sums = {share * sums.mass, share * sums.hits};
    }
    return prior;
  }

 private:
  struct Sums {
    double mass = 2, hits = 2;
  };
  const Sums& of(size_t slot) const { return sums_[std::min(slot, sums_.size() - 1)]; }
  Sums& of(size_t slot) { return sums_[std::min(slot, sums_.size() - 1)]; }

  std::array<Sums, 4> sums_;  // the last: of all slots from there on
};

/// Rare tries while drafting does not pay, each after twice as long a wait as the one before.
class Probes {
 public:
  /// Whether this pass drafts, given whether it should by what is known.
  bool decide(bool pays) {
    if (pays) {
      wait_ = kFirstWait;
    } else if (++idle_ < wait_) {
      return false;
    } else {
      wait_ = std::min(2 * wait_, kLastWait);
    }
    idle_ = 0;
    return true;
  }
  /// A new text may be another matter.
  void hurry() { wait_ = std::min(wait_, kNewText); }

 private:
  static constexpr int64_t kFirstWait = 16, kNewText = 64, kLastWait = 512;
  int64_t wait_ = kFirstWait, idle_ = 0;
};

}  // namespace dflash::decode
