// How tile_attention splits its work: groups of neighbouring blocks whose query rows fill some
// tiles, each for every kv head, dealt to threads by their number of scores. Internal to draft/.
#pragma once

#include <cstdint>
#include <vector>

#include "draft/block_attention.h"

namespace dflash::draft {

/// Blocks [first, first + count) in the plan's order, and the context that any of them sees.
struct AttentionGroup {
  int64_t first = 0, count = 0;
  block::Span context;
};

std::vector<AttentionGroup> attention_groups(const AttentionPlan& plan);

/// One group of one kv head.
struct AttentionUnit {
  int64_t kv_head = 0;
  const AttentionGroup* group = nullptr;
};

/// The units of one thread and one kv head; `context` is what any of them sees. Sums over the
/// context are made per run and joined in the order of runs, so they depend on `threads` only.
struct AttentionRun {
  int64_t kv_head = 0;
  std::vector<AttentionUnit> units;
  block::Span context;
};

/// [threads] lists of runs, kv head by kv head.
std::vector<std::vector<AttentionRun>> deal_attention(const std::vector<AttentionGroup>& groups,
                                                      int64_t kv_heads, int64_t threads);

}  // namespace dflash::draft
