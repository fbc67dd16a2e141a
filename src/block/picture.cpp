#include "block/picture.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace dflash::block {
namespace {

/// Whether row `query` of all block rows sees key column `key` of [context rows, block rows].
bool visible(const LayerRule& layer, const Blocks& blocks, int64_t num_context_rows, int64_t query,
             int64_t key) {
  const int64_t n = query / blocks.block_size, slot = query % blocks.block_size;
  if (key < num_context_rows) {
    const Span span = context_span(layer, blocks.doc_begin_N[n], blocks.anchor_N[n], slot);
    return key >= span.begin && key < span.end;
  }
  const int64_t block_key = key - num_context_rows;
  if (block_key / blocks.block_size != n) return false;
  return sees_slot(layer, slot, block_key % blocks.block_size);
}

/// Layers with one rule are drawn once.
std::vector<std::pair<LayerRule, std::vector<int64_t>>> distinct_rules(const BlockRule& rule) {
  std::vector<std::pair<LayerRule, std::vector<int64_t>>> groups;
  for (size_t layer = 0; layer < rule.layers.size(); ++layer) {
    bool found = false;
    for (auto& [known, members] : groups) {
      if (known == rule.layers[layer]) {
        members.push_back(static_cast<int64_t>(layer));
        found = true;
      }
    }
    if (!found) groups.push_back({rule.layers[layer], {static_cast<int64_t>(layer)}});
  }
  return groups;
}

std::string or_dash(int64_t value) {
  return value < 0 ? "-" : std::to_string(value);
}

std::string context_text(const PackedRow& row) {
  std::string text =
      fmt::format("{:>4} {:>4} {:>6} {:>4} {:>4}\n", "row", "doc", "id", "pos", "mask");
  int64_t begin = 0;
  for (size_t t = 0; t < row.ids_T.size(); ++t) {
    if (t > 0 && row.doc_T[t] != row.doc_T[t - 1]) begin = static_cast<int64_t>(t);
    text += fmt::format("{:>4} {:>4} {:>6} {:>4} {:>4}\n", t, or_dash(row.doc_T[t]), row.ids_T[t],
                        row.doc_T[t] < 0 ? "-" : std::to_string(static_cast<int64_t>(t) - begin),
                        row.loss_mask_T[t]);
  }
  return text;
}

OrderedJson rule_json(const LayerRule& layer) {
  return {{"window", layer.window},
          {"bound", layer.bound == Bound::kQuery ? "query" : "anchor"},
          {"in_block", layer.in_block == InBlock::kCausal ? "causal" : "bidirectional"}};
}

OrderedJson slot_json(const Blocks& blocks, const PackedRow& row, int64_t at) {
  const int64_t label = blocks.label_row_NK[at], teacher = blocks.teacher_row_NK[at];
  OrderedJson slot = {{"id", blocks.ids_NK[at]}, {"position", blocks.pos_NK[at]}};
  slot["label_row"] = label < 0 ? OrderedJson() : OrderedJson(label);
  slot["label"] = label < 0 ? OrderedJson() : OrderedJson(row.ids_T[label]);
  slot["teacher_row"] = teacher < 0 ? OrderedJson() : OrderedJson(teacher);
  slot["weight"] = blocks.weight_NK[at];
  return slot;
}

}  // namespace

std::string visibility_text(const LayerRule& layer, const Blocks& blocks,
                            int64_t num_context_rows) {
  std::string text;
  const int64_t queries = blocks.num_blocks * blocks.block_size;
  for (int64_t query = 0; query < queries; ++query) {
    text += fmt::format("block {} slot {} |", query / blocks.block_size, query % blocks.block_size);
    for (int64_t key = 0; key < num_context_rows + queries; ++key) {
      if (key == num_context_rows) text += " |";
      text += visible(layer, blocks, num_context_rows, query, key) ? " 1" : " 0";
    }
    text += '\n';
  }
  return text;
}

std::string table_text(const BlockRule& rule, const Blocks& blocks, const PackedRow& row) {
  constexpr std::string_view kLine = "{:>5} {:>4} {:>6} {:>4} {:>9} {:>6} {:>11} {:>6}\n";
  std::string text = fmt::format(kLine, "block", "slot", "id", "pos", "label_row", "label",
                                 "teacher_row", "weight");
  for (int64_t at = 0; at < blocks.num_blocks * blocks.block_size; ++at) {
    const int64_t slot = at % blocks.block_size, label = blocks.label_row_NK[at];
    const bool is_mask = slot > 0 && blocks.ids_NK[at] == rule.mask_id;
    text += fmt::format(kLine, at / blocks.block_size, slot,
                        is_mask ? "M" : std::to_string(blocks.ids_NK[at]), blocks.pos_NK[at],
                        or_dash(label), label < 0 ? "-" : std::to_string(row.ids_T[label]),
                        or_dash(blocks.teacher_row_NK[at]), blocks.weight_NK[at]);
  }
  return text;
}

std::string picture_text(const BlockRule& rule, const PackedRow& row, const Blocks& blocks) {
  std::string text = fmt::format("block size {}, mask id {}, slot k predicts position a+k{}\n\n",
                                 rule.block_size, rule.mask_id, rule.slot_shift ? "+1" : "");
  text += "context\n" + context_text(row) + "\nblocks\n" + table_text(rule, blocks, row);
  for (const auto& [layer, members] : distinct_rules(rule)) {
    text += fmt::format("\nvisible in layers {}: {}\n", fmt::join(members, ","), describe(layer));
    text += visibility_text(layer, blocks, static_cast<int64_t>(row.ids_T.size()));
  }
  return text;
}

OrderedJson picture_json(const BlockRule& rule, const PackedRow& row, const Blocks& blocks) {
  OrderedJson json;
  json["rule"] = {
      {"block_size", rule.block_size}, {"mask_id", rule.mask_id}, {"slot_shift", rule.slot_shift}};
  json["context"] = {
      {"ids", std::vector<int64_t>(row.ids_T.begin(), row.ids_T.end())},
      {"doc", std::vector<int64_t>(row.doc_T.begin(), row.doc_T.end())},
      {"loss_mask", std::vector<int>(row.loss_mask_T.begin(), row.loss_mask_T.end())}};
  json["blocks"] = OrderedJson::array();
  for (int64_t n = 0; n < blocks.num_blocks; ++n) {
    OrderedJson slots = OrderedJson::array();
    for (int64_t k = 0; k < blocks.block_size; ++k) {
      slots.push_back(slot_json(blocks, row, n * blocks.block_size + k));
    }
    json["blocks"].push_back({{"anchor_row", blocks.anchor_N[n]},
                              {"doc_begin", blocks.doc_begin_N[n]},
                              {"slots", std::move(slots)}});
  }
  const auto context_rows = static_cast<int64_t>(row.ids_T.size());
  const int64_t queries = blocks.num_blocks * blocks.block_size;
  json["layers"] = OrderedJson::array();
  for (const auto& [layer, members] : distinct_rules(rule)) {
    OrderedJson rows = OrderedJson::array();
    for (int64_t query = 0; query < queries; ++query) {
      std::vector<int> line;
      for (int64_t key = 0; key < context_rows + queries; ++key) {
        line.push_back(visible(layer, blocks, context_rows, query, key) ? 1 : 0);
      }
      rows.push_back(line);
    }
    json["layers"].push_back(
        {{"layers", members}, {"rule", rule_json(layer)}, {"visible", std::move(rows)}});
  }
  return json;
}

}  // namespace dflash::block
