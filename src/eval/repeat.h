// The look of a drafter whose joint with its target is off: drafts like "FizzFizzFizzFizz" or
// "elif elif elif elif", far more often than the texts repeat themselves.
#pragma once

#include <cstdint>
#include <span>

#include "decode/engine.h"

namespace dflash::eval {

/// At least four tokens that are one token, or two in turn, over and over.
bool repeats(std::span<const int64_t> ids);

/// Share of all windows of `width` tokens that repeat; 0 for shorter texts.
struct WindowCount {
  int64_t repeating = 0, windows = 0;
  void add(std::span<const int64_t> ids, int64_t width);
  double share() const;
};

/// Hands everything on to `inner` and counts the blocks that repeat.
class WatchedProposer final : public decode::Proposer {
 public:
  explicit WatchedProposer(decode::Proposer& inner) : inner_(inner) {}

  std::vector<std::vector<int64_t>> propose(std::span<const Sequence> sequences) override;
  void observe(std::span<const Committed> committed, const at::Tensor& taps_RF) override {
    inner_.observe(committed, taps_RF);
  }
  void reset(int64_t slot, int64_t rows) override { inner_.reset(slot, rows); }
  std::vector<int64_t> taps() const override { return inner_.taps(); }
  int64_t max_proposals() const override { return inner_.max_proposals(); }
  std::string name() const override { return inner_.name(); }

  const WindowCount& count() const { return count_; }

 private:
  decode::Proposer& inner_;
  WindowCount count_;  // one window a block
};

}  // namespace dflash::eval
