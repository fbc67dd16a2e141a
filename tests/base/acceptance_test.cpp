// R-EV-1, R-EV-2: tau and acceptance per slot from hand-counted passes.
#include "base/acceptance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dflash {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

TEST(Acceptance, TauCountsCommittedTokensOverPasses) {  // R-EV-1
  AcceptanceCounts counts;
  for (int64_t committed : {3, 1, 16, 2}) counts.add_pass(15, committed - 1, committed);
  EXPECT_DOUBLE_EQ(counts.tau(), 5.5);

  AcceptanceCounts cut;  // the last pass was cut by a stop token from 5 to 2
  for (int64_t committed : {3, 1, 16}) cut.add_pass(15, committed - 1, committed);
  cut.add_pass(15, 2, 2);
  EXPECT_DOUBLE_EQ(cut.tau(), 5.5);
}

TEST(Acceptance, SlotsPlainAndConditional) {  // R-EV-2
  AcceptanceCounts counts;
  for (int64_t accepted : {3, 1, 0, 2}) counts.add_pass(3, accepted, accepted + 1);
  EXPECT_DOUBLE_EQ(counts.tau(), 2.5);
  EXPECT_THAT(counts.slot_acceptance(), ElementsAre(0.75, 0.5, 0.25));
  EXPECT_THAT(counts.conditional_acceptance(),
              ElementsAre(0.75, DoubleEq(2.0 / 3.0), DoubleEq(0.5)));
  EXPECT_THAT(counts.histogram(), ElementsAre(0, 1, 1, 1, 1));
}

TEST(Acceptance, MergePoolsAndEmptyIsZero) {
  AcceptanceCounts a, b, none;
  a.add_pass(7, 7, 8);
  b.add_pass(0, 0, 1);
  a.merge(b);
  a.merge(none);
  EXPECT_DOUBLE_EQ(a.tau(), 4.5);
  EXPECT_EQ(none.tau(), 0.0);
  EXPECT_TRUE(none.slot_acceptance().empty());
}

}  // namespace
}  // namespace dflash
