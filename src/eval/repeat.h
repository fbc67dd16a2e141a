// The look of a drafter whose joint with its target is off: drafts like "FizzFizzFizzFizz" or
// "elif elif elif elif", far more often than the texts repeat themselves.
#pragma once

#include <cstdint>
#include <span>

#include "decode/forwarding_proposer.h"

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
class WatchedProposer final : public decode::ForwardingProposer {
 public:
  using ForwardingProposer::ForwardingProposer;

  std::vector<decode::Proposal> propose(std::span<const Sequence> sequences) override;

  const WindowCount& count() const { return count_; }

 private:
  WindowCount count_;  // one window a block
};

}  // namespace dflash::eval
