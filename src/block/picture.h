// Blocks for people: every (query, key) pair, and the table of ids, positions, labels, teacher rows
// and weights, as text and as JSON (verb `inspect block`).
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "block/blocks.h"

namespace dflash::block {

/// One line a slot: a column of 0/1 per context row, then one per block row of all blocks.
///   block 0 slot 1 | 1 0 0 0 0 | 1 1 0 0
std::string visibility_text(const LayerRule& layer, const Blocks& blocks, int64_t num_context_rows);

/// One line a slot: id, position, label (row and id), teacher row, weight; M marks the mask id and
/// - what is absent.
std::string table_text(const BlockRule& rule, const Blocks& blocks, const PackedRow& row);

/// The row's documents, the table, and one visibility picture per distinct layer rule.
std::string picture_text(const BlockRule& rule, const PackedRow& row, const Blocks& blocks);

/// The same: {"rule", "context", "blocks", "layers": [{"layers": [...], "rule", "visible":
/// [[..]]}]}.
OrderedJson picture_json(const BlockRule& rule, const PackedRow& row, const Blocks& blocks);

}  // namespace dflash::block
