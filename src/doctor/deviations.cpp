#include "doctor/deviations.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace dflash::doctor {
namespace {

using block::Bound;
using block::InBlock;
using block::LayerRule;

class List {
 public:
  List(const Convention& declared, const target::Target& target, int64_t longest,
       const std::vector<int64_t>& mask_ids)
      : declared_(declared), config_(target.config()), longest_(longest), mask_ids_(mask_ids) {}

  std::vector<Deviation> make() {
    add_context();
    add_taps();
    add_norms();
    add_slots();
    add_windows();
    add_mask_ids();
    add_rope();
    return std::move(list_);
  }

 private:
  void add(std::string name, std::string words, std::function<void(Convention&)> apply) {
    list_.push_back({std::move(name), std::move(words), std::move(apply)});
  }
  void add_rule(std::string name, std::string words, std::function<void(LayerRule&)> change) {
    add(std::move(name), std::move(words), [change](Convention& convention) {
      for (LayerRule& rule : convention.spec.rule.layers) change(rule);
    });
  }

  void add_context() {
    add_rule("anchor-visible", "the anchor's own feature visible (context rows <= anchor)",
             [](LayerRule& rule) { rule.context_shift = 1; });
    add_rule("context-short", "the context one row short (rows < anchor - 1)",
             [](LayerRule& rule) { rule.context_shift = -1; });
  }

  void add_taps() {
    const auto& taps = declared_.taps;
    for (const int64_t by : {1, -1}) {
      const bool fits = std::all_of(taps.begin(), taps.end(), [&](const TapUse& tap) {
        return tap.layer + by >= -1 && tap.layer + by < config_.num_layers;
      });
      if (!fits) continue;
      add(by > 0 ? "taps-up" : "taps-down",
          fmt::format("all taps one block {}", by > 0 ? "later" : "earlier"),
          [by](Convention& convention) {
            for (TapUse& tap : convention.taps) tap.layer += by;
          });
    }
    for (size_t i = 0; i < taps.size(); ++i) {
      add(fmt::format("tap-{}-zeroed", taps[i].layer),
          fmt::format("the tap after block {} missing: zeros in its place", taps[i].layer),
          [i](Convention& convention) { convention.taps[i].zeroed = true; });
    }
    for (size_t i = 0; i + 1 < taps.size(); ++i) {
      add(fmt::format("taps-{}-{}-swapped", taps[i].layer, taps[i + 1].layer),
          fmt::format("the taps after blocks {} and {} swapped", taps[i].layer, taps[i + 1].layer),
          [i](Convention& convention) { std::swap(convention.taps[i], convention.taps[i + 1]); });
    }
    if (taps.size() > 2) {
      add("taps-reversed", "the taps in reverse order", [](Convention& convention) {
        std::reverse(convention.taps.begin(), convention.taps.end());
      });
    }
    if (!declared_.bf16_features) {
      add("features-bf16", "features rounded to bf16",
          [](Convention& convention) { convention.bf16_features = true; });
    }
  }

  void add_norms() {
    add("last-tap-normed", "the target's final norm applied to the last tap",
        [](Convention& convention) { convention.taps.back().final_normed = true; });
    if (declared_.taps.size() > 1) {
      add("taps-normed", "the target's final norm applied to every tap",
          [](Convention& convention) {
            for (TapUse& tap : convention.taps) tap.final_normed = true;
          });
    }
  }

  void add_slots() {
    const bool in_place = declared_.spec.rule.slot_shift == 0;
    add(in_place ? "labels-anchor-first" : "labels-in-place",
        in_place ? "labels shifted: slot k predicts the token at anchor + k + 1 (anchor-first)"
                 : "labels shifted: slot k predicts the token at anchor + k (in place)",
        [in_place](Convention& convention) { convention.spec.rule.slot_shift = in_place ? 1 : 0; });
    for (const int64_t by : {1, -1}) {
      add(by > 0 ? "positions-late" : "positions-early",
          fmt::format("positions of the block {} by one", by > 0 ? "too high" : "too low"),
          [by](Convention& convention) { convention.spec.rule.position_shift = by; });
    }
    add("anchor-masked", "slot 0 embeds the mask id instead of the anchor's token",
        [](Convention& convention) { convention.spec.rule.mask_anchor = true; });
    const bool causal = declared_.spec.rule.layers.front().in_block == InBlock::kCausal;
    add_rule(causal ? "block-bidirectional" : "block-causal",
             causal ? "the block bidirectional" : "the block causal", [causal](LayerRule& rule) {
               rule.in_block = causal ? InBlock::kBidirectional : InBlock::kCausal;
             });
  }

  void add_windows() {
    const auto& layers = declared_.spec.rule.layers;
    const bool windowed = std::any_of(layers.begin(), layers.end(),
                                      [](const LayerRule& rule) { return rule.window > 0; });
    if (windowed) {
      add_rule("window-ignored", "full attention: the sliding window ignored",
               [](LayerRule& rule) { rule.window = 0; });
      for (const int64_t by : {1, -1}) {
        add_rule(by > 0 ? "window-longer" : "window-shorter",
                 fmt::format("the sliding window one row {}", by > 0 ? "longer" : "shorter"),
                 [by](LayerRule& rule) {
                   if (rule.window > 0) rule.window = std::max<int64_t>(1, rule.window + by);
                 });
      }
      add_rule("window-bound", "the window counted from the other end (query or anchor)",
               [](LayerRule& rule) {
                 rule.bound = rule.bound == Bound::kQuery ? Bound::kAnchor : Bound::kQuery;
               });
      return;
    }
    for (const int64_t window : {16, 64, 256, 1024, 2048, 4096}) {
      if (2 * window > longest_) break;
      add_rule(fmt::format("window-{}", window),
               fmt::format("a sliding window of {} rows in every layer", window),
               [window](LayerRule& rule) { rule.window = window; });
    }
  }

  void add_mask_ids() {
    const int64_t own = declared_.spec.rule.mask_id;
    std::set<int64_t> ids(config_.eos_ids.begin(), config_.eos_ids.end());
    ids.insert({0, own - 1, own + 1, config_.vocab_size - 1});
    ids.insert(mask_ids_.begin(), mask_ids_.end());
    for (const int64_t id : ids) {
      if (id == own || id < 0 || id >= config_.vocab_size) continue;
      add(fmt::format("mask-id-{}", id), fmt::format("mask id {} instead of {}", id, own),
          [id](Convention& convention) { convention.spec.rule.mask_id = id; });
    }
  }

  void add_rope() {
    const nn::RopeConfig& rope = declared_.spec.rope;
    std::set<double> bases = {1e4, 1e6, config_.rope_theta};
    for (const double base : bases) {
      if (base == rope.theta) continue;
      add(fmt::format("rope-base-{:g}", base),
          fmt::format("rotary base {:g} instead of {:g}", base, rope.theta),
          [base](Convention& convention) { convention.spec.rope.theta = base; });
    }
    if (rope.scaling != "default" || !rope.frequency_factors.empty()) {
      add("rope-scaling-ignored", "rotary scaling ignored", [](Convention& convention) {
        const double theta = convention.spec.rope.theta;
        convention.spec.rope = nn::RopeConfig();
        convention.spec.rope.theta = theta;
      });
    }
  }

  const Convention& declared_;
  const target::TargetConfig& config_;
  int64_t longest_;
  const std::vector<int64_t>& mask_ids_;
  std::vector<Deviation> list_;
};

}  // namespace

std::vector<Deviation> deviations_of(const Convention& declared, const target::Target& target,
                                     int64_t longest, const std::vector<int64_t>& mask_ids) {
  return List(declared, target, longest, mask_ids).make();
}

Convention deviate(const Convention& declared, const Deviation& deviation) {
  Convention convention = declared;
  deviation.apply(convention);
  return convention;
}

}  // namespace dflash::doctor
