// Visibility: R-MASK-1's picture, windows (R-MASK-5), and the masks of other programs.
#include "block/rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "block/blocks.h"
#include "block/picture.h"
#include "support/paths.h"

namespace dflash::block {
namespace {

const std::string kGolden = tree::root().string() + "/tests/golden/block/";

TEST(Picture, WholeSmallCase) {  // R-MASK-1
  const std::vector<int64_t> ids = {10, 11, 12, 13, 14}, doc = {0, 0, 0, 1, 1}, anchors = {1, 3};
  const std::vector<uint8_t> mask(5, 1);
  const BlockRule rule{.block_size = 2, .mask_id = 99, .layers = {LayerRule{}, LayerRule{}}};
  const PackedRow row{ids, mask, doc};
  const Blocks blocks = training_blocks(rule, row, anchors);
  EXPECT_EQ(picture_text(rule, row, blocks), read_text(kGolden + "r_mask_1.txt"));

  const OrderedJson json = picture_json(rule, row, blocks);
  EXPECT_EQ(json["layers"].size(), 1u);
  EXPECT_EQ(json["layers"][0]["visible"][3], OrderedJson({0, 0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(json["blocks"][1]["slots"][0]["teacher_row"], nullptr);
  EXPECT_EQ(json["blocks"][1]["slots"][1]["label"], 14);
}

TEST(Visibility, EqualsOtherProgramsMasks) {
  const Json cases = read_json(kGolden + "visibility.json");
  ASSERT_GE(cases.size(), 10u);
  for (const Json& wanted : cases) {
    SCOPED_TRACE(wanted.dump().substr(0, 160));
    const std::vector<int64_t> doc = wanted["doc"], anchors = wanted["anchors"];
    const std::vector<int64_t> ids(doc.size(), 0);
    const std::vector<uint8_t> mask(doc.size(), 1);
    const LayerRule layer{
        .window = wanted["window"],
        .bound = wanted["bound"] == "query" ? Bound::kQuery : Bound::kAnchor,
        .in_block = wanted["causal"] == true ? InBlock::kCausal : InBlock::kBidirectional};
    const BlockRule rule{.block_size = wanted["block_size"], .mask_id = 1, .layers = {layer}};
    const Blocks blocks = training_blocks(rule, {ids, mask, doc}, anchors);
    const OrderedJson got = picture_json(rule, {ids, mask, doc}, blocks)["layers"][0]["visible"];
    ASSERT_EQ(got.size(), wanted["visible"].size());
    for (size_t query = 0; query < got.size(); ++query) {
      std::string line;
      for (int bit : got[query]) line += bit ? '1' : '0';
      EXPECT_EQ(line, wanted["visible"][query].get<std::string>()) << "query " << query;
    }
  }
}

std::pair<int64_t, int64_t> span(const LayerRule& rule, int64_t begin, int64_t a, int64_t slot) {
  const Span found = context_span(rule, begin, a, slot);
  return {found.begin, found.end};
}

TEST(Visibility, SlidingWindows) {  // R-MASK-5
  const LayerRule from_anchor{.window = 4, .bound = Bound::kAnchor};
  const LayerRule from_query{.window = 4, .bound = Bound::kQuery, .in_block = InBlock::kCausal};
  for (int64_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(span(from_anchor, 0, 10, slot), std::pair(int64_t{6}, int64_t{10}));
    EXPECT_EQ(span(from_query, 0, 10, slot), std::pair(7 + slot, int64_t{10}));
    for (int64_t key = 0; key < 3; ++key) {
      EXPECT_TRUE(sees_slot(from_anchor, slot, key));
      EXPECT_EQ(sees_slot(from_query, slot, key), key <= slot);
    }
  }
  EXPECT_EQ(span({.window = 50}, 0, 10, 2), std::pair(int64_t{0}, int64_t{10}));
  EXPECT_EQ(span({.window = 50, .bound = Bound::kAnchor}, 8, 10, 0),
            std::pair(int64_t{8}, int64_t{10}));
  // A slot further from the anchor than the window sees no context, never a negative range.
  EXPECT_EQ(span(from_query, 0, 10, 7), std::pair(int64_t{10}, int64_t{10}));
}

TEST(Visibility, BandNarrowsTheBlock) {  // MODELS.md 4.9: (W-1, W-1)
  const LayerRule band{.window = 2};
  for (int64_t q = 0; q < 5; ++q) {
    for (int64_t k = 0; k < 5; ++k) EXPECT_EQ(sees_slot(band, q, k), std::abs(q - k) <= 1);
  }
}

TEST(CheckRule, RefusesImpossibleRules) {
  const BlockRule good{.block_size = 8, .mask_id = 3, .layers = {LayerRule{}}};
  EXPECT_NO_THROW(check_rule(good, 4));
  const auto refuse = [&](auto change) {
    BlockRule bad = good;
    change(bad);
    EXPECT_THROW(check_rule(bad, 4), Error);
  };
  refuse([](BlockRule& r) { r.block_size = 1; });
  refuse([](BlockRule& r) { r.block_size = 1 << 20; });
  refuse([](BlockRule& r) { r.mask_id = 4; });
  refuse([](BlockRule& r) { r.mask_id = -1; });
  refuse([](BlockRule& r) { r.slot_shift = 2; });
  refuse([](BlockRule& r) { r.layers.clear(); });
  refuse([](BlockRule& r) { r.layers[0].window = -1; });
}

}  // namespace
}  // namespace dflash::block
