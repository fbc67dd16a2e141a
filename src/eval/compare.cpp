#include "eval/compare.h"

#include <ATen/ops/topk.h>

namespace dflash::eval {
namespace {

/// Largest minus second largest logit after `ids`, in one pass from nothing.
double top_two_margin(const target::Target& target, std::vector<int64_t> ids) {
  const c10::NoGradGuard no_grad;
  const int64_t count = static_cast<int64_t>(ids.size());
  const std::unique_ptr<target::State> state = target.new_state();
  const target::Segment segment = {state.get(), 0, count, /*undo=*/false};
  const target::Hidden hidden = target.forward(
      {at::from_blob(ids.data(), {count}, at::kLong), at::arange(count, at::kLong), {&segment, 1}},
      {});
  const at::Tensor last = target.final_norm(hidden.last_RD.narrow(0, count - 1, 1));
  const at::Tensor best = std::get<0>(at::topk(target.head().logits(last)[0], 2));
  return best[0].item<double>() - best[1].item<double>();
}

int64_t token_at(std::span<const int64_t> tokens, size_t index) {
  return index < tokens.size() ? tokens[index] : -1;
}

}  // namespace

double tie_margin(nn::Compute compute) {
  return compute == nn::Compute::kBF16 ? 0.125 : 1e-3;
}

std::optional<Difference> first_difference(const target::Target& target,
                                           std::span<const int64_t> prompt,
                                           std::span<const int64_t> plain,
                                           std::span<const int64_t> drafted, bool greedy) {
  size_t index = 0;
  while (index < plain.size() && index < drafted.size() && plain[index] == drafted[index]) ++index;
  if (index == plain.size() && index == drafted.size()) return std::nullopt;
  Difference difference;
  difference.index = static_cast<int64_t>(index);
  difference.plain_token = token_at(plain, index);
  difference.drafted_token = token_at(drafted, index);
  std::vector<int64_t> ids(prompt.begin(), prompt.end());
  ids.insert(ids.end(), plain.begin(), plain.begin() + static_cast<int64_t>(index));
  if (static_cast<int64_t>(ids.size()) <= target.config().max_positions) {
    difference.margin = top_two_margin(target, std::move(ids));
  }
  // A text that stops early is never a tie: no two logits compete for "no token".
  difference.tie = greedy && difference.plain_token >= 0 && difference.drafted_token >= 0 &&
                   difference.margin <= tie_margin(target.compute());
  return difference;
}

}  // namespace dflash::eval
