// Attention of many blocks over one packed row, for training: every query sees its context (span
// of block::context_span) and its own block (block::sees_slot) under one softmax. Time and memory
// are linear in anchors and in context; no [N*K, T + N*K] mask or score matrix exists. The
// backward is written by hand and recomputes the probabilities. Slow twin: tests/draft.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "block/blocks.h"
#include "block/rule.h"

namespace dflash::draft {

/// Who sees what, for one layer rule: blocks ordered by anchor, cut into tiles whose context is one
/// range, so that a tile is a dense product with its borders masked. Built once a step, shared by
/// all layers with the same rule, and by forward and backward.
class AttentionPlan {
 public:
  /// `tile_scores`: bound on the scores of one tile and kv head, K * (H / G) rows a block.
  AttentionPlan(const block::Blocks& blocks, const block::LayerRule& rule, int64_t heads_per_kv,
                int64_t tile_scores = 1 << 19);

  struct Tile {
    int64_t first_block = 0, num_blocks = 0;  // in sorted order
    block::Span context;                      // union of the rows' spans
  };
  /// Rows [row, row + num_rows) of a tile see only context [begin, end), relative to the tile.
  struct Border {
    int64_t row = 0, num_rows = 0, begin = 0, end = 0;
  };

  int64_t num_blocks() const { return static_cast<int64_t>(order_.size()); }
  int64_t block_size() const { return block_size_; }
  int64_t heads_per_kv() const { return heads_per_kv_; }
  bool is_sorted() const { return sorted_; }
  const std::vector<int64_t>& order() const { return order_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  /// Borders of a tile: only rows that do not see all of its context.
  std::vector<Border> borders(const Tile& tile) const;
  /// What one slot sees: context rows (`slot` counts through the blocks in sorted order), and slots
  /// of its own block.
  const block::Span& context(int64_t slot) const { return span_NK_[static_cast<size_t>(slot)]; }
  const block::Span& own_slots(int64_t slot) const {
    return slot_span_K_[static_cast<size_t>(slot % block_size_)];
  }
  /// f32 [K * heads_per_kv, K] to add to scores, 0 = may attend, else -inf; undefined when every
  /// slot sees every slot.
  const at::Tensor& in_block_bias() const { return in_block_bias_; }

 private:
  int64_t block_size_ = 0, heads_per_kv_ = 0;
  bool sorted_ = true;
  std::vector<int64_t> order_;
  std::vector<block::Span> span_NK_;  // in sorted order
  std::vector<block::Span> slot_span_K_;
  std::vector<Tile> tiles_;
  at::Tensor in_block_bias_;
};

struct BlockAttentionInputs {
  at::Tensor q_NKHE;          // queries of the block rows
  at::Tensor k_TGE, v_TGE;    // context
  at::Tensor k_NKGE, v_NKGE;  // the blocks' own rows
};

/// Asserts shapes and types that fit each other and the plan.
void check_attention_inputs(const BlockAttentionInputs& inputs, const AttentionPlan& plan);

/// -> [N, K, H, E]; scale E^-0.5. f32 or f64, all alike; differentiable once, in all five inputs
/// (without blocks in none but the queries).
at::Tensor block_attention(const BlockAttentionInputs& inputs,
                           const std::shared_ptr<const AttentionPlan>& plan);

}  // namespace dflash::draft
