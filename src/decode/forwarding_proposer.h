// A proposer that hands everything on to another: the base of those that only look on.
#pragma once

#include "decode/engine.h"

namespace dflash::decode {

class ForwardingProposer : public Proposer {
 public:
  /// `inner` must outlive it.
  explicit ForwardingProposer(Proposer& inner) : inner_(inner) {}

  std::vector<Proposal> propose(std::span<const Sequence> sequences) override {
    return inner_.propose(sequences);
  }
  void observe(std::span<const Committed> committed, const at::Tensor& taps_RF) override {
    inner_.observe(committed, taps_RF);
  }
  void reset(int64_t slot, int64_t rows) override { inner_.reset(slot, rows); }
  void measure(const PassCost& cost) override { inner_.measure(cost); }
  std::vector<int64_t> taps() const override { return inner_.taps(); }
  int64_t max_proposals() const override { return inner_.max_proposals(); }
  std::string name() const override { return inner_.name(); }

 private:
  Proposer& inner_;
};

}  // namespace dflash::decode
