#include "train/metrics.h"

#include <gtest/gtest.h>

namespace dflash::train {
namespace {

// R-LOSS-8: counts add up, whatever the split.
TEST(SlotMetrics, SharesAddUp) {
  SlotMetrics total(11);
  for (int rank = 0; rank < 4; ++rank) {
    SlotMetrics one(11);
    std::vector<uint8_t> supervised(11, 1), correct(11, 1);
    supervised[0] = 0;
    correct[3] = correct[7] = 0;
    one.add(supervised, correct);
    total.merge(one);
  }
  EXPECT_DOUBLE_EQ(total.accuracy(), 0.8);
  EXPECT_DOUBLE_EQ(total.to_json()["accuracy"].get<double>(), 0.8);
  EXPECT_EQ(total.num_blocks(), 4);
}

// R-EV-2 seen from the trainer: leading runs 3, 1, 0, 2 of B = 4.
TEST(SlotMetrics, RunsAndConditionals) {
  SlotMetrics metrics(4);
  metrics.add({0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1},
              {0, 1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0});
  EXPECT_DOUBLE_EQ(metrics.expected_acceptance(), 2.5);
  EXPECT_DOUBLE_EQ(metrics.conditional_accuracy()[1], 3.0 / 4);
  EXPECT_DOUBLE_EQ(metrics.conditional_accuracy()[2], 2.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.conditional_accuracy()[3], 1.0 / 2);
  EXPECT_DOUBLE_EQ(metrics.slot_accuracy()[3], 3.0 / 4);
}

// LOSS-15: unsupervised slots count neither above nor below the line.
TEST(SlotMetrics, UnsupervisedSlotsDoNotCount) {
  SlotMetrics metrics(4);
  metrics.add({0, 1, 0, 0, 0, 1, 1, 0}, {0, 1, 1, 1, 0, 1, 0, 1});
  EXPECT_DOUBLE_EQ(metrics.slot_accuracy()[3], 0.0);
  EXPECT_DOUBLE_EQ(metrics.accuracy(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.conditional_accuracy()[2], 0.0);
  EXPECT_DOUBLE_EQ(metrics.expected_acceptance(), 2.0);
}

TEST(SlotMetrics, AnchorFirstSlotZeroCounts) {
  SlotMetrics metrics(3);
  metrics.add({1, 1, 1}, {1, 1, 0});
  EXPECT_DOUBLE_EQ(metrics.expected_acceptance(), 3.0);
}

}  // namespace
}  // namespace dflash::train
