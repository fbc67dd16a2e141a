#include "block/rule.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace dflash::block {
namespace {

constexpr int64_t kMaxBlockSize = 1024;  // keeps N * K and every row index far from overflow

}  // namespace

Span context_span(const LayerRule& rule, int64_t doc_begin, int64_t anchor, int64_t slot) {
  int64_t begin = doc_begin;
  if (rule.window > 0) {
    const int64_t lowest =
        rule.bound == Bound::kQuery ? anchor + slot - (rule.window - 1) : anchor - rule.window;
    begin = std::max(begin, lowest);
  }
  const int64_t end = std::max(doc_begin, anchor + rule.context_shift);
  return {std::min(begin, end), end};
}

bool sees_slot(const LayerRule& rule, int64_t query, int64_t key) {
  if (rule.in_block == InBlock::kCausal && key > query) return false;
  if (rule.window > 0 && rule.bound == Bound::kQuery) {
    return std::abs(query - key) <= rule.window - 1;
  }
  return true;
}

Span slot_span(const LayerRule& rule, int64_t query, int64_t block_size) {
  Span span{query, query + 1};
  while (span.begin > 0 && sees_slot(rule, query, span.begin - 1)) --span.begin;
  while (span.end < block_size && sees_slot(rule, query, span.end)) ++span.end;
  return span;
}

void check_rule(const BlockRule& rule, int64_t vocab_size) {
  if (rule.block_size < 2 || rule.block_size > kMaxBlockSize) {
    fail("block size: expected 2 to {}, got {}\n  hint: a block of 1 leaves nothing to propose",
         kMaxBlockSize, rule.block_size);
  }
  if (rule.mask_id < 0 || rule.mask_id >= vocab_size) {
    fail(
        "mask id: expected 0 to {} (rows of the target's embedding), got {}\n"
        "  hint: take an unused special token of the target, never its end or padding token",
        vocab_size - 1, rule.mask_id);
  }
  if (rule.slot_shift != 0 && rule.slot_shift != 1) {
    fail("slot shift: expected 0 (slot k predicts a+k) or 1 (anchor-first), got {}",
         rule.slot_shift);
  }
  if (rule.layers.empty()) fail("block rule: expected one rule a drafter layer, got none");
  for (const LayerRule& layer : rule.layers) {
    if (layer.window < 0) {
      fail("sliding window: expected 0 (full attention) or more, got {}", layer.window);
    }
  }
}

std::string describe(const LayerRule& rule) {
  const char* in_block = rule.in_block == InBlock::kCausal ? "causal block" : "bidirectional block";
  if (rule.window == 0) return fmt::format("full, {}", in_block);
  return fmt::format("window {} counted from the {}, {}", rule.window,
                     rule.bound == Bound::kQuery ? "query" : "anchor", in_block);
}

}  // namespace dflash::block
