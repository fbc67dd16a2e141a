// inspect block: documents, supervision, anchors and layer rules on the command line; ids,
// positions, visibility of every (query, key) pair, labels, teacher rows and weights come out.
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "block/blocks.h"
#include "block/picture.h"
#include "cli/inspect.h"
#include "cli/options.h"

namespace dflash::cli {
namespace {

int64_t parse_integer(const std::string& text, const std::string& what) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) {
    fail("{}: expected an integer, got '{}'", what, text);
  }
  return value;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// "full", "full:causal", "4:query:causal", "4:anchor:bidirectional".
block::LayerRule parse_layer(const std::string& text) {
  const auto parts = split(text, ':');
  block::LayerRule rule;
  rule.window = parts[0] == "full" ? 0 : parse_integer(parts[0], "window of --layer " + text);
  if (parts[0] != "full" && rule.window < 1)
    fail("window of --layer {}: expected at least 1", text);
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] == "query") {
      rule.bound = block::Bound::kQuery;
    } else if (parts[i] == "anchor") {
      rule.bound = block::Bound::kAnchor;
    } else if (parts[i] == "causal") {
      rule.in_block = block::InBlock::kCausal;
    } else if (parts[i] == "bidirectional") {
      rule.in_block = block::InBlock::kBidirectional;
    } else {
      fail("--layer {}: '{}' is not one of query, anchor, causal, bidirectional", text, parts[i]);
    }
  }
  return rule;
}

/// A packed row from document lengths and supervised ranges; token ids are 100, 101, ...
struct Row {
  std::vector<int64_t> ids, doc;
  std::vector<uint8_t> mask;
  block::PackedRow packed() const { return {ids, mask, doc}; }
};

Row make_row(const std::vector<int64_t>& lengths, const std::vector<std::string>& supervised) {
  Row row;
  for (size_t d = 0; d < lengths.size(); ++d) {
    if (lengths[d] < 1 || lengths[d] > 4096) fail("--docs: a length must be in [1, 4096]");
    row.doc.insert(row.doc.end(), lengths[d], static_cast<int64_t>(d));
  }
  for (size_t i = 0; i < row.doc.size(); ++i) row.ids.push_back(100 + static_cast<int64_t>(i));
  row.mask.assign(row.doc.size(), supervised.empty() ? 1 : 0);
  for (const std::string& range : supervised) {
    const auto ends = split(range, '-');
    const int64_t begin = parse_integer(ends.front(), "--supervised");
    const int64_t last = parse_integer(ends.back(), "--supervised");
    if (ends.size() > 2 || begin < 0 || last < begin ||
        last >= static_cast<int64_t>(row.mask.size())) {
      fail("--supervised {}: expected rows as 3 or 3-7 inside [0, {})", range, row.mask.size());
    }
    std::fill(row.mask.begin() + begin, row.mask.begin() + last + 1, uint8_t{1});
  }
  return row;
}

}  // namespace

int inspect_block(int argc, char** argv) {
  VerbParser parser("inspect block", "Who sees whom in a DFlash block, and what it is trained on.");
  std::vector<int64_t> lengths, anchors;
  std::vector<std::string> supervised, layers = {"full"};
  block::BlockRule rule{.block_size = 4, .mask_id = 1, .layers = {}};
  bool json = false;
  auto& app = parser.app();
  app.add_option("--docs", lengths, "lengths of the packed documents: 3,2")
      ->delimiter(',')
      ->required();
  app.add_option("--supervised", supervised, "rows the target wrote: 2-5,8 (none: all)")
      ->delimiter(',');
  app.add_option("--anchors", anchors, "storage rows of the anchors (none: all legal ones)")
      ->delimiter(',');
  app.add_option("--block-size", rule.block_size, "slots with the anchor")
      ->check(CLI::Range(2, 64));
  app.add_option("--layer", layers,
                 "one a layer: full, 4:query:causal, 4:anchor:bidirectional ...");
  app.add_option("--mask-id", rule.mask_id, "id of the mask token");
  app.add_option("--slot-shift", rule.slot_shift, "0: slot k predicts a+k; 1: a+k+1")
      ->check(CLI::Range(0, 1));
  app.add_flag("--json", json, "as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;

  rule.layers.clear();
  for (const std::string& layer : layers) rule.layers.push_back(parse_layer(layer));
  const Row row = make_row(lengths, supervised);
  if (anchors.empty()) anchors = block::legal_anchors(row.packed());
  for (int64_t anchor : anchors) {
    if (anchor < 0 || anchor >= static_cast<int64_t>(row.ids.size())) {
      fail("--anchors: {} is outside the {} rows", anchor, row.ids.size());
    }
  }
  const auto blocks = block::training_blocks(rule, row.packed(), anchors);
  if (json) {
    fmt::print("{}\n", block::picture_json(rule, row.packed(), blocks).dump(2));
  } else {
    fmt::print("{}", block::picture_text(rule, row.packed(), blocks));
  }
  return 0;
}

}  // namespace dflash::cli
