#include "draft/attention_groups.h"

#include <algorithm>

namespace dflash::draft {
namespace {

constexpr int64_t kRows = 96;           // query rows of a group: three pairs of tiles
constexpr double kMaxWaste = 1.5;       // a group's context over its widest block's
constexpr int64_t kSmallContext = 128;  // below, waste does not matter

int64_t length(const block::Span& span) {
  return std::max<int64_t>(0, span.end - span.begin);
}

block::Span unite(const block::Span& a, const block::Span& b) {
  if (length(a) == 0) return b;
  if (length(b) == 0) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

}  // namespace

std::vector<AttentionGroup> attention_groups(const AttentionPlan& plan) {
  const int64_t slots = plan.block_size(), rows = slots * plan.heads_per_kv();
  std::vector<AttentionGroup> groups;
  int64_t widest = 0;
  for (int64_t n = 0; n < plan.num_blocks(); ++n) {
    block::Span own;
    for (int64_t k = 0; k < slots; ++k) own = unite(own, plan.context(n * slots + k));
    if (!groups.empty() && (groups.back().count + 1) * rows <= kRows) {
      AttentionGroup& group = groups.back();
      const block::Span joined = unite(group.context, own);
      const auto allowed = static_cast<double>(std::max(widest, length(own))) * kMaxWaste;
      if (length(joined) <= std::max<int64_t>(kSmallContext, static_cast<int64_t>(allowed))) {
        group.context = joined;
        ++group.count;
        widest = std::max(widest, length(own));
        continue;
      }
    }
    groups.push_back({n, 1, own});
    widest = length(own);
  }
  return groups;
}

std::vector<std::vector<AttentionRun>> deal_attention(const std::vector<AttentionGroup>& groups,
                                                      int64_t kv_heads, int64_t threads) {
  double all = 0, done = 0;
  const auto work = [](const AttentionGroup& group) {
    return static_cast<double>(group.count * (length(group.context) + 32));
  };
  for (const AttentionGroup& group : groups) all += work(group) * static_cast<double>(kv_heads);
  std::vector<std::vector<AttentionRun>> result(static_cast<size_t>(threads));
  for (int64_t g = 0; g < kv_heads; ++g) {
    for (const AttentionGroup& group : groups) {
      const double middle = done + work(group) / 2;
      const auto thread =
          std::min(threads - 1, static_cast<int64_t>(middle / all * static_cast<double>(threads)));
      std::vector<AttentionRun>& runs = result[static_cast<size_t>(thread)];
      if (runs.empty() || runs.back().kv_head != g) runs.push_back({g, {}, {}});
      runs.back().units.push_back({g, &group});
      runs.back().context = unite(runs.back().context, group.context);
      done += work(group);
    }
  }
  return result;
}

}  // namespace dflash::draft
