#include "doctor/statistics.h"

#include <gtest/gtest.h>

namespace dflash::doctor {
namespace {

// Worked by hand: sorted .005 .01 .03 .04 times 4 3 2 1 -> .02 .03 .06 .06 (never falling).
TEST(Holm, StepsDown) {
  const std::vector<double> adjusted = holm({0.01, 0.04, 0.03, 0.005});
  EXPECT_DOUBLE_EQ(adjusted[0], 0.03);
  EXPECT_DOUBLE_EQ(adjusted[1], 0.06);
  EXPECT_DOUBLE_EQ(adjusted[2], 0.06);
  EXPECT_DOUBLE_EQ(adjusted[3], 0.02);
}

TEST(Holm, NeverAboveOne) {
  EXPECT_EQ(holm({0.9, 0.8}), (std::vector<double>{1.0, 1.0}));
}

TEST(PromptScores, PoolsOverPrompts) {
  const PromptScores scores{{10, 0, 20}, {4, 0, 2}};
  EXPECT_DOUBLE_EQ(scores.mean(), 5.0);  // 30 / 6, not the mean of 2.5 and 10
}

TEST(Bootstrap, EqualArmsAreNotAGain) {
  const PromptScores scores{{10, 12, 20, 7}, {4, 4, 8, 3}};
  const Comparison same = compare_paired(scores, scores, 500, 1);
  EXPECT_DOUBLE_EQ(same.difference, 0.0);
  EXPECT_DOUBLE_EQ(same.p, 1.0);
}

// Two prompts that both gain prove nothing: chance does that once in four.
TEST(Bootstrap, FewPromptsNeverProve) {
  const PromptScores base{{10, 12}, {4, 4}}, arm{{11, 13}, {4, 4}};
  EXPECT_DOUBLE_EQ(compare_paired(arm, base, 10000, 1).p, 0.25);
  EXPECT_EQ(prompts_needed(38, 0.01), 12);
  EXPECT_LE(38 * std::pow(0.5, 12), 0.01);
  EXPECT_GT(38 * std::pow(0.5, 11), 0.01);
}

// Answers of one token give no anchor and are no evidence.
TEST(Bootstrap, PromptsWithoutAnchorsDoNotCount) {
  PromptScores base{{10, 12}, {4, 4}}, arm{{11, 13}, {4, 4}};
  for (int p = 0; p < 20; ++p) {
    for (PromptScores* scores : {&base, &arm}) {
      scores->sum_P.push_back(0);
      scores->count_P.push_back(0);
    }
  }
  EXPECT_DOUBLE_EQ(compare_paired(arm, base, 10000, 1).p, 0.25);
  EXPECT_DOUBLE_EQ(compare_paired({{0}, {0}}, {{0}, {0}}, 100, 1).p, 1);
}

TEST(Bootstrap, AGainInEveryPromptIsSureAndOneInASinglePromptIsNot) {
  PromptScores base, everywhere, once;
  for (int p = 0; p < 20; ++p) {
    base.sum_P.push_back(100 + 3 * p);
    base.count_P.push_back(50);
    everywhere.sum_P.push_back(105 + 3 * p);
    everywhere.count_P.push_back(50);
    once.sum_P.push_back(100 + 3 * p + (p == 7 ? 100 : -0.1));
    once.count_P.push_back(50);
  }
  const Comparison sure = compare_paired(everywhere, base, 2000, 1);
  EXPECT_NEAR(sure.difference, 0.1, 1e-12);
  EXPECT_LT(sure.p, 0.001);
  EXPECT_NEAR(sure.low, 0.1, 1e-12);  // paired: the prompts' own spread is gone
  // The resamples without prompt 7 have no gain: (19/20)^20 = 0.358 of them.
  const Comparison unsure = compare_paired(once, base, 4000, 1);
  EXPECT_NEAR(unsure.p, 0.358, 0.04);
  EXPECT_EQ(compare_paired(once, base, 4000, 1).p, unsure.p);  // the same resamples every time
}

}  // namespace
}  // namespace dflash::doctor
