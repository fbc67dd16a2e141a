// Reduced draft vocabularies: order, required ids, coverage.
#include "data/vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace dflash::data {
namespace {

using testing::ElementsAre;

Dataset make_dataset() {
  Dataset dataset;  // supervised: 5 x3, 3 x2, 4 x2, 8 x1; 9 only in prompts
  dataset.add({{9, 9, 9, 9, 5, 5, 5, 4}, {0, 0, 0, 0, 1, 1, 1, 1}});
  dataset.add({{3, 3, 4, 8}, {1, 1, 1, 1}});
  return dataset;
}

TEST(DraftVocab, MostFrequentSupervisedAndRequired) {
  const std::vector<int64_t> always = {1, 1};
  const DraftVocab vocab = make_draft_vocab(make_dataset(), 3, always, 10);
  EXPECT_THAT(vocab.ids, ElementsAre(1, 3, 5));  // 3 before 4: equal counts, lower id
  EXPECT_EQ(vocab.supervised, 8);
  EXPECT_EQ(vocab.covered, 5);
  EXPECT_DOUBLE_EQ(vocab.coverage(), 0.625);
  EXPECT_EQ(vocab.to_json()["dataset_fingerprint"], dataset_fingerprint(make_dataset()));

  const DraftVocab all = make_draft_vocab(make_dataset(), 9, always, 10);
  EXPECT_THAT(all.ids, ElementsAre(1, 3, 4, 5, 8));  // no more than the data says
  EXPECT_DOUBLE_EQ(all.coverage(), 1.0);
}

TEST(DraftVocab, Refusals) {
  const std::vector<int64_t> two = {1, 2}, outside = {10};
  EXPECT_THROW(make_draft_vocab(make_dataset(), 1, two, 10), Error);
  EXPECT_THROW(make_draft_vocab(make_dataset(), 5, outside, 10), Error);
  EXPECT_THROW(make_draft_vocab(make_dataset(), 5, {}, 8), Error);
  EXPECT_DOUBLE_EQ(make_draft_vocab({}, 5, two, 10).coverage(), 0.0);
}

}  // namespace
}  // namespace dflash::data
