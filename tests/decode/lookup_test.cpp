// Prompt lookup: longest n-gram first, latest occurrence, loops continued, room kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "decode/proposers.h"

namespace dflash::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> lookup(const std::vector<int64_t>& ids, int64_t room = 100,
                            const LookupOptions& options = {}) {
  const Proposer::Sequence sequence = {ids, 0, room};
  return make_lookup_proposer(options)->propose({&sequence, 1})[0].ids;
}

TEST(Lookup, FollowsTheLongestSuffix) {
  // The last three ids stood before 4; the last one alone, later, before 9.
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 3, 9, 1, 2, 3}, 2), ElementsAre(4, 5));
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 3, 9, 1, 2, 3}, 2, {.max_ngram = 1}), ElementsAre(9, 1));
}

TEST(Lookup, TakesTheLatestOccurrence) {
  EXPECT_THAT(lookup({7, 1, 7, 2, 7}, 1), ElementsAre(2));
}

TEST(Lookup, ContinuesALoop) {
  EXPECT_THAT(lookup({1, 2, 1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(lookup({6, 6, 6}, 4), ElementsAre(6, 6, 6, 6));
}

TEST(Lookup, NothingFoundOrNoRoom) {
  EXPECT_THAT(lookup({1, 2, 3}), IsEmpty());
  EXPECT_THAT(lookup({1}), IsEmpty());
  EXPECT_THAT(lookup({1, 1}, 0), IsEmpty());
  EXPECT_EQ(lookup({1, 1, 1}).size(), 7u);
  EXPECT_THROW(make_lookup_proposer({.max_ngram = 0}), Error);
}

}  // namespace
}  // namespace dflash::decode
