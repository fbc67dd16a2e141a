#include "doctor/convention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <set>

#include "base/error.h"
#include "decode/proposers.h"

namespace dflash::doctor {
namespace {

/// A drafter's proposer that is fed by a convention's features.
class ConventionProposer final : public decode::Proposer {
 public:
  ConventionProposer(const Convention& convention, const draft::Drafter& drafter,
                     const target::Target& target)
      : convention_(convention),
        layers_(layers_of({convention})),
        target_(target),
        inner_(decode::make_draft_proposer(packed_drafter_under(convention, drafter), target)) {}

  std::vector<decode::Proposal> propose(std::span<const Sequence> sequences) override {
    return inner_->propose(sequences);
  }
  void observe(std::span<const Committed> committed, const at::Tensor& taps_RF) override {
    inner_->observe(committed, features_of(convention_, target_, layers_, taps_RF));
  }
  void reset(int64_t slot, int64_t rows) override { inner_->reset(slot, rows); }
  std::vector<int64_t> taps() const override { return layers_; }
  int64_t max_proposals() const override { return inner_->max_proposals(); }
  std::string name() const override { return inner_->name(); }

 private:
  Convention convention_;
  std::vector<int64_t> layers_;
  const target::Target& target_;
  std::unique_ptr<decode::Proposer> inner_;
};

}  // namespace

Convention declared_convention(const draft::DraftSpec& spec) {
  Convention convention;
  convention.spec = spec;
  for (int64_t layer : spec.taps) convention.taps.push_back({.layer = layer});
  return convention;
}

std::shared_ptr<draft::Drafter> drafter_under(const Convention& convention,
                                              const draft::Drafter& drafter) {
  auto other =
      draft::Drafter::from_weights(convention.spec, drafter.compute(), drafter.parameters());
  other->share_own_tables(drafter);
  return other;
}

std::shared_ptr<draft::Drafter> packed_drafter_under(const Convention& convention,
                                                     const draft::Drafter& drafter) {
  auto other = drafter_under(convention, drafter);
  other->pack();
  return other;
}

std::vector<int64_t> layers_of(const std::vector<Convention>& conventions) {
  std::set<int64_t> layers;
  for (const Convention& convention : conventions) {
    for (const TapUse& tap : convention.taps) layers.insert(tap.layer);
  }
  return {layers.begin(), layers.end()};
}

at::Tensor features_of(const Convention& convention, const target::Target& target,
                       const std::vector<int64_t>& layers, const at::Tensor& bank_TF) {
  const int64_t width = target.config().hidden_size;
  std::vector<at::Tensor> parts;
  for (const TapUse& tap : convention.taps) {
    const auto found = std::find(layers.begin(), layers.end(), tap.layer);
    DF_ASSERT(found != layers.end(), "layer {} was not captured", tap.layer);
    at::Tensor part_TD = bank_TF.narrow(1, (found - layers.begin()) * width, width);
    if (tap.final_normed) part_TD = target.final_norm(part_TD.contiguous());
    parts.push_back(tap.zeroed ? at::zeros_like(part_TD) : part_TD);
  }
  const at::Tensor features_TF = at::cat(parts, 1);
  if (!convention.bf16_features) return features_TF;
  return features_TF.to(at::kBFloat16).to(at::kFloat);
}

bool can_be_served(const Convention& convention) {
  for (const block::LayerRule& rule : convention.spec.rule.layers) {
    if (rule.context_shift > 0) return false;
  }
  return true;
}

std::unique_ptr<decode::Proposer> proposer_under(const Convention& convention,
                                                 const draft::Drafter& drafter,
                                                 const target::Target& target) {
  if (!can_be_served(convention)) {
    fail(
        "convention: expected one that can be served: the anchor's own feature is not known when "
        "its block is drafted");
  }
  return std::make_unique<ConventionProposer>(convention, drafter, target);
}

}  // namespace dflash::doctor
