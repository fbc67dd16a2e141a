// Anchors, labels, weights and decay of blocks by hand-worked cases.
#include "block/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

namespace dflash::block {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Row {
  std::vector<int64_t> ids, doc;
  std::vector<uint8_t> mask;
  PackedRow view() const { return {ids, mask, doc}; }
};

/// Ids 100, 101, ...; everything supervised.
Row make_row(std::vector<int64_t> doc) {
  Row row{std::vector<int64_t>(doc.size()), doc, std::vector<uint8_t>(doc.size(), 1)};
  std::iota(row.ids.begin(), row.ids.end(), 100);
  return row;
}

BlockRule make_rule(int64_t size, int64_t shift = 0) {
  return {.block_size = size, .mask_id = 7, .slot_shift = shift, .layers = {LayerRule{}}};
}

TEST(Blocks, DocumentsPaddingAndEnds) {  // R-MASK-2
  const Row row = make_row({0, 0, 0, 1, 1, 1, -1, -1});
  EXPECT_THAT(legal_anchors(row.view()), ElementsAre(0, 1, 3, 4));

  const std::vector<int64_t> anchors = {0, 2, 4};
  const Blocks blocks = training_blocks(make_rule(3), row.view(), anchors);
  const auto context = [&](int64_t n) {
    const Span span = context_span({}, blocks.doc_begin_N[n], blocks.anchor_N[n], 0);
    return std::pair(span.begin, span.end);
  };
  EXPECT_EQ(context(0), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(context(1), std::pair(int64_t{0}, int64_t{2}));
  EXPECT_EQ(context(2), std::pair(int64_t{3}, int64_t{4}));

  const std::vector<int64_t> near_end = {1};
  const Blocks last = training_blocks(make_rule(3), row.view(), near_end);
  EXPECT_THAT(last.ids_NK, ElementsAre(101, 7, 7));
  EXPECT_THAT(last.pos_NK, ElementsAre(1, 2, 3));
  EXPECT_THAT(last.label_row_NK, ElementsAre(1, 2, -1));
  EXPECT_THAT(last.teacher_row_NK, ElementsAre(0, 1, -1));
  EXPECT_THAT(last.weight_NK, ElementsAre(0, 1, 0));
}

TEST(Blocks, DocumentShorterThanTheBlock) {  // R-MASK-8
  const Row row = make_row({0, 0, 0, 0, 0});
  EXPECT_THAT(legal_anchors(row.view()), ElementsAre(0, 1, 2, 3));
  const std::vector<int64_t> anchors = {3};
  const Blocks blocks = training_blocks(make_rule(16), row.view(), anchors);
  EXPECT_EQ(std::accumulate(blocks.weight_NK.begin(), blocks.weight_NK.end(), 0.0f), 1.0f);
  EXPECT_EQ(blocks.weight_NK[1], 1.0f);
  EXPECT_EQ(blocks.pos_NK[15], 18);

  Row one_supervised = row;
  one_supervised.mask = {0, 0, 0, 0, 1};
  EXPECT_THAT(legal_anchors(one_supervised.view()), IsEmpty());
  EXPECT_THAT(sample_anchors(one_supervised.view(), {}), IsEmpty());
}

TEST(Blocks, UnsupervisedLabelsWeighNothing) {
  Row row = make_row({0, 0, 0, 0, 0, 0});
  row.mask = {0, 1, 1, 0, 1, 1};
  EXPECT_THAT(legal_anchors(row.view()), ElementsAre(1, 4));
  const std::vector<int64_t> anchors = {1};
  const Blocks blocks = training_blocks(make_rule(4), row.view(), anchors);
  EXPECT_THAT(blocks.label_row_NK, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(blocks.weight_NK, ElementsAre(0, 1, 0, 1));
}

TEST(Blocks, AnchorFirstShiftsLabelsAndTeachers) {  // MODELS.md 4.5
  const Row row = make_row({0, 0, 0, 0, 1, 1});
  const std::vector<int64_t> anchors = {1, 4};
  const Blocks blocks = training_blocks(make_rule(3, 1), row.view(), anchors);
  EXPECT_THAT(blocks.ids_NK, ElementsAre(101, 7, 7, 104, 7, 7));
  EXPECT_THAT(blocks.pos_NK, ElementsAre(1, 2, 3, 0, 1, 2));
  EXPECT_THAT(blocks.label_row_NK, ElementsAre(2, 3, -1, 5, -1, -1));
  EXPECT_THAT(blocks.teacher_row_NK, ElementsAre(1, 2, -1, 4, -1, -1));
  EXPECT_THAT(blocks.weight_NK, ElementsAre(1, 1, 0, 1, 0, 0));
}

TEST(Blocks, DecodingEqualsTrainingButForSupervision) {
  const Row row = make_row({0, 0, 0, 0, 0, 0});
  for (int64_t anchor : {0, 3, 5}) {
    const std::vector<int64_t> anchors = {anchor};
    const std::vector<DecodingAnchor> decoding = {{row.ids[anchor], anchor}};
    const Blocks train = training_blocks(make_rule(4), row.view(), anchors);
    const Blocks decode = decoding_blocks(make_rule(4), decoding);
    EXPECT_EQ(train.ids_NK, decode.ids_NK);
    EXPECT_EQ(train.pos_NK, decode.pos_NK);
    EXPECT_EQ(train.anchor_N, decode.anchor_N);
    EXPECT_EQ(train.doc_begin_N, decode.doc_begin_N);
    EXPECT_THAT(decode.weight_NK, testing::Each(0.0f));
    EXPECT_THAT(decode.label_row_NK, testing::Each(-1));
    EXPECT_THAT(decode.teacher_row_NK, testing::Each(-1));
  }
}

TEST(Anchors, BudgetIsPerDocumentAndPackingDoesNotMatter) {  // MASK-13
  std::vector<int64_t> doc(60, 0);
  doc.insert(doc.end(), 40, 1);
  const Row both = make_row(doc), second = make_row(std::vector<int64_t>(40, 0));
  const std::vector<int64_t> numbers = {12, 5}, only = {5};
  const auto drawn = sample_anchors(
      both.view(), {.per_document = 10, .seed = 3, .epoch = 1, .documents = numbers});
  const auto alone =
      sample_anchors(second.view(), {.per_document = 10, .seed = 3, .epoch = 1, .documents = only});
  ASSERT_EQ(drawn.size(), 20u);
  ASSERT_EQ(alone.size(), 10u);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(drawn[10 + i] - 60, alone[i]);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
  EXPECT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()).size(), 20u);

  const auto other_epoch = sample_anchors(
      both.view(), {.per_document = 10, .seed = 3, .epoch = 2, .documents = numbers});
  EXPECT_NE(drawn, other_epoch);
  const auto all = sample_anchors(both.view(), {.per_document = 1000});
  EXPECT_EQ(all, legal_anchors(both.view()));
}

TEST(Anchors, EveryPositionIsEquallyLikely) {
  const Row row = make_row(std::vector<int64_t>(21, 0));  // 20 legal anchors
  std::vector<int> counts(20, 0);
  constexpr int kEpochs = 4000;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (int64_t a : sample_anchors(row.view(), {.per_document = 5, .epoch = epoch})) ++counts[a];
  }
  // Each is drawn with p = 1/4; 4.5 standard errors.
  const double bound = 4.5 * std::sqrt(kEpochs * 0.25 * 0.75);
  for (int count : counts) EXPECT_NEAR(count, kEpochs * 0.25, bound);
}

TEST(Decay, PaperValues) {  // R-LOSS-1
  const std::vector<float> g7 = slot_decay(make_rule(16), 7);
  const double wanted[] = {0,       1,       .866878, .751477, .651439, .564718, .489542, .424373,
                           .367879, .318907, .276453, .239651, .207748, .180092, .156118, .135335};
  for (int k = 0; k < 16; ++k) EXPECT_NEAR(g7[k], wanted[k], 1e-6) << "slot " << k;
  EXPECT_NEAR(std::accumulate(g7.begin(), g7.end(), 0.0), 6.630611, 2e-6);
  const std::vector<float> g4 = slot_decay(make_rule(16), 4);
  EXPECT_NEAR(g4[2], .778801, 1e-6);
  EXPECT_NEAR(g4[15], .030197, 1e-6);
  EXPECT_NEAR(std::accumulate(g4.begin(), g4.end(), 0.0), 4.414492, 2e-6);
  EXPECT_THAT(slot_decay(make_rule(4), 0), ElementsAre(0, 1, 1, 1));
  EXPECT_NEAR(slot_decay(make_rule(3, 1), 4)[1], .778801, 1e-6);
  EXPECT_EQ(slot_decay(make_rule(3, 1), 4)[0], 1.0f);
}

}  // namespace
}  // namespace dflash::block
