#include "draft/average.h"

#include <c10/core/GradMode.h>

#include "base/error.h"

namespace dflash::draft {
namespace {

/// What keeps two drafters from having a mean; empty: nothing.
std::string difference(const Drafter& one, const Drafter& other) {
  const DraftSpec &a = one.spec(), &b = other.spec();
  if (a.rule.block_size != b.rule.block_size) return "block size";
  if (a.rule.mask_id != b.rule.mask_id) return "mask id";
  if (a.rule.slot_shift != b.rule.slot_shift || a.rule.layers != b.rule.layers) return "rule";
  if (a.taps != b.taps) return "taps";
  if (a.draft_ids != b.draft_ids) return "draft vocabulary";
  if (a.rope.theta != b.rope.theta) return "rotary base";
  const std::string &target = a.target_fingerprint, &other_target = b.target_fingerprint;
  if (!target.empty() && !other_target.empty() && target != other_target) return "target";
  for (const auto& [name, value] : one.parameters()) {
    const auto found = other.parameters().find(name);
    if (found == other.parameters().end() || found->second.sizes() != value.sizes()) return name;
  }
  return one.parameters().size() == other.parameters().size() ? "" : "number of parameters";
}

}  // namespace

void average_in(Drafter& drafter, const std::vector<std::shared_ptr<Drafter>>& others) {
  const c10::NoGradGuard guard;
  for (const auto& other : others) {
    const std::string what = difference(drafter, *other);
    if (!what.empty()) {
      fail(
          "average: expected drafters of one form, got another {}\n  hint: runs that start from "
          "one drafter (train --init-from) have one form",
          what);
    }
  }
  const double share = 1.0 / static_cast<double>(others.size() + 1);
  for (const auto& [name, value] : drafter.parameters()) {
    at::Tensor mean = value;
    for (const auto& other : others) mean.add_(other->parameters().at(name));
    mean.mul_(share);
  }
}

}  // namespace dflash::draft
