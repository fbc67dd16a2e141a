// THE definition of who sees whom in a DFlash block, for training and decoding alike (DESIGN.md
// 2.1, MODELS.md 4.8, 4.9). Nothing else in the program decides visibility. No Torch here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dflash::block {

/// From where a sliding window is counted.
enum class Bound {
  kQuery,   // slot k at a+k sees positions within W-1 of its own, context and block alike
  kAnchor,  // every slot sees context rows >= a-W; the window does not cut inside the block
};

/// Which slots of its own block a slot sees (a query-relative window may narrow it further).
enum class InBlock { kBidirectional, kCausal };

struct LayerRule {
  int64_t window = 0;  // 0: full attention
  Bound bound = Bound::kQuery;
  InBlock in_block = InBlock::kBidirectional;
  /// Context rows end at anchor + this. 0, always, but in proofs: 1 is the fault in which a slot
  /// sees the anchor's own feature, -1 the one in which a row is missing. No format can say it.
  int64_t context_shift = 0;

  bool operator==(const LayerRule&) const = default;
};

struct BlockRule {
  int64_t block_size = 0;  // slots with the anchor; proposals are block_size - 1 + slot_shift
  int64_t mask_id = -1;
  int64_t slot_shift = 0;  // 0: slot k predicts position a+k; 1 (anchor-first): a+k+1
  std::vector<LayerRule> layers;
  // Faults, for proofs only; no format can say them.
  int64_t position_shift = 0;  // added to the positions of block rows, never below 0
  bool mask_anchor = false;    // slot 0 holds the mask id instead of the anchor's token
};

/// Half-open range of context rows.
struct Span {
  int64_t begin = 0, end = 0;
};

/// Context rows that `slot` of a block anchored at storage row `anchor` sees: strictly before the
/// anchor, in the anchor's document, inside the window. Empty for an anchor at its document's
/// begin. A context shift of +1 adds the anchor's own row.
Span context_span(const LayerRule& rule, int64_t doc_begin, int64_t anchor, int64_t slot);

/// Whether slot `query` sees slot `key` of its own block.
bool sees_slot(const LayerRule& rule, int64_t query, int64_t key);

/// The slots that `query` sees, as one range of a block's slots: no rule leaves holes.
Span slot_span(const LayerRule& rule, int64_t query, int64_t block_size);

/// Throws Error when sizes or ids are impossible: block size outside [2, 1024], mask id outside
/// [0, vocab_size), slot shift not 0 or 1, negative window, no layers.
void check_rule(const BlockRule& rule, int64_t vocab_size);

/// "full, bidirectional block" or "window 4 counted from the query, causal block".
std::string describe(const LayerRule& rule);

}  // namespace dflash::block
