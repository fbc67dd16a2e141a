// Cuts the blocks of a packed row into tiles. Visibility itself is asked of block/ only.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "draft/block_attention.h"

namespace dflash::draft {
namespace {

// A tile may be so much larger than what its rows really see.
constexpr double kMaxWaste = 1.5;
// Contexts below this are joined whatever the waste: the products are too small to matter.
constexpr int64_t kSmallContext = 128;

block::Span unite(const block::Span& a, const block::Span& b) {
  if (a.begin >= a.end) return b;
  if (b.begin >= b.end) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

int64_t length(const block::Span& span) {
  return std::max<int64_t>(0, span.end - span.begin);
}

at::Tensor bias_inside_block(const block::LayerRule& rule, int64_t block_size,
                             int64_t heads_per_kv) {
  const int64_t rows = block_size * heads_per_kv;
  at::Tensor bias = at::zeros({rows, block_size}, at::kFloat);
  bool all = true;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t key = 0; key < block_size; ++key) {
      const bool seen = block::sees_slot(rule, row / heads_per_kv, key);
      if (seen) continue;
      bias.data_ptr<float>()[row * block_size + key] = -std::numeric_limits<float>::infinity();
      all = false;
    }
  }
  return all ? at::Tensor() : bias;
}

}  // namespace

AttentionPlan::AttentionPlan(const block::Blocks& blocks, const block::LayerRule& rule,
                             int64_t heads_per_kv, int64_t tile_scores)
    : block_size_(blocks.block_size),
      heads_per_kv_(heads_per_kv),
      order_(static_cast<size_t>(blocks.num_blocks)),
      in_block_bias_(bias_inside_block(rule, blocks.block_size, heads_per_kv)) {
  std::iota(order_.begin(), order_.end(), 0);
  const auto& anchor_N = blocks.anchor_N;
  sorted_ = std::is_sorted(anchor_N.begin(), anchor_N.end());
  if (!sorted_) {
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int64_t a, int64_t b) { return anchor_N[a] < anchor_N[b]; });
  }
  for (int64_t k = 0; k < block_size_; ++k) {
    slot_span_K_.push_back(block::slot_span(rule, k, block_size_));
  }
  double seen = 0;  // mean context of the current tile's blocks, summed over blocks
  int64_t doc = -1;
  for (int64_t i = 0; i < num_blocks(); ++i) {
    const int64_t n = order_[i];
    block::Span own;
    for (int64_t k = 0; k < block_size_; ++k) {
      span_NK_.push_back(block::context_span(rule, blocks.doc_begin_N[n], anchor_N[n], k));
      own = unite(own, span_NK_.back());
    }
    if (!tiles_.empty() && blocks.doc_begin_N[n] == doc) {
      Tile& tile = tiles_.back();
      const block::Span joined = unite(tile.context, own);
      const double work = static_cast<double>(length(joined)) * (tile.num_blocks + 1);
      const bool small = length(joined) <= kSmallContext;
      const bool dense = work <= kMaxWaste * (seen + static_cast<double>(length(own)));
      const double scores = work * static_cast<double>(block_size_ * heads_per_kv_);
      if ((small || dense) && scores <= static_cast<double>(tile_scores)) {
        tile.context = joined;
        ++tile.num_blocks;
        seen += static_cast<double>(length(own));
        continue;
      }
    }
    tiles_.push_back({i, 1, own});
    seen = static_cast<double>(length(own));
    doc = blocks.doc_begin_N[n];
  }
}

std::vector<AttentionPlan::Border> AttentionPlan::borders(const Tile& tile) const {
  std::vector<Border> result;
  const int64_t tile_length = length(tile.context);
  for (int64_t slot = 0; slot < tile.num_blocks * block_size_; ++slot) {
    const block::Span& span = span_NK_[tile.first_block * block_size_ + slot];
    Border border{slot * heads_per_kv_, heads_per_kv_, span.begin - tile.context.begin,
                  span.end - tile.context.begin};
    if (span.begin >= span.end) border.begin = border.end = 0;
    if (border.begin == 0 && border.end == tile_length) continue;
    Border* last = result.empty() ? nullptr : &result.back();
    if (last && last->row + last->num_rows == border.row && last->begin == border.begin &&
        last->end == border.end) {
      last->num_rows += border.num_rows;
    } else {
      result.push_back(border);
    }
  }
  return result;
}

}  // namespace dflash::draft
