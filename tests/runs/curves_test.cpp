// Where curves with a known parting part, and that noise alone does not.
#include "runs/curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "made_run.h"

namespace dflash::runs {
namespace {

using ::testing::ElementsAre;
using testing::noise;

/// A run whose losses are `loss(step)`, without a folder.
TrainingRun of_losses(int64_t steps, int64_t anchors, const std::function<double(int64_t)>& loss) {
  TrainingRun run;
  for (int64_t step = 1; step <= steps; ++step) {
    Step line;
    line.step = step;
    line.anchors = anchors;
    line.anchors_seen = step * anchors;
    line.loss = loss(step);
    run.steps.push_back(line);
  }
  return run;
}

/// A falling curve with noise of its own and a change of `shift` in the steps (from, to].
TrainingRun made(uint64_t seed, double shift = 0, int64_t from = 0, int64_t to = 1000000,
                 int64_t steps = 400) {
  return of_losses(steps, 256, [=](int64_t step) {
    return 4 + 30 * std::exp(-0.05 * static_cast<double>(step)) + 0.2 * noise(step, seed) +
           (step > from && step <= to ? shift : 0);
  });
}

Parting parting(const TrainingRun& a, const TrainingRun& b, Axis axis = Axis::kStep) {
  return find_parting(a, b, axis, &Step::loss);
}

TEST(Identity, TheSameBitForBitUntilAStep) {
  const TrainingRun a = made(1), same = made(1), later = made(1, 1e-15, 150);
  const Identity all = compare_bits(a, same);
  EXPECT_EQ(all.common_steps, 400);
  EXPECT_EQ(all.same_until, 400);
  EXPECT_EQ(all.first_other, 0);
  const Identity some = compare_bits(a, later);
  EXPECT_EQ(some.same_until, 150);
  EXPECT_EQ(some.first_other, 151);
  EXPECT_THAT(some.fields, ElementsAre("loss"));
  const Identity none = compare_bits(a, made(2));
  EXPECT_EQ(none.same_until, 0);
  EXPECT_EQ(none.first_other, 1);
}

TEST(Identity, OnlyCommonStepsCount) {
  TrainingRun a = made(1), b = made(1, 0, 0, 0, 100);
  a.steps.erase(a.steps.begin() + 10);  // a broken line
  const Identity identity = compare_bits(a, b);
  EXPECT_EQ(identity.common_steps, 99);
  EXPECT_EQ(identity.same_until, 100);
  EXPECT_EQ(identity.first_other, 0);
  b.steps.clear();
  EXPECT_EQ(compare_bits(a, b).common_steps, 0);
  b = made(1);
  b.steps[0].anchors += 1;
  b.steps[0].rate_factor = std::nan("");
  EXPECT_THAT(compare_bits(a, b).fields, ElementsAre("anchors", "rate"));
}

TEST(Parting, FromTheStepOnThatIsKnown) {
  for (const int64_t from : {0, 100, 200, 350}) {
    for (const double shift : {0.3, -0.3}) {
      const Parting found = parting(made(1), made(2, shift, from));
      EXPECT_EQ(found.verdict, Verdict::kApart) << from;
      EXPECT_GE(found.from_step, from + 1 - found.pairs_per_window) << from;
      EXPECT_LE(found.from_step, from + 1 + found.pairs_per_window) << from;
      EXPECT_EQ(found.to_step, 400);
      EXPECT_NEAR(found.difference, shift, 4 * found.error);
      EXPECT_GT(found.error, 0);
    }
  }
}

// The same batches: their noise drops out, and a small change is seen.
TEST(Parting, CommonNoiseHidesNothing) {
  const Parting found = parting(made(1), made(1, 0.01, 200));
  EXPECT_EQ(found.verdict, Verdict::kApart);
  EXPECT_EQ(found.from_step, 201);
  EXPECT_NEAR(found.difference, 0.01, 1e-9);
}

TEST(Parting, NoiseAloneIsNotAParting) {
  for (uint64_t seed = 2; seed < 200; ++seed) {
    const Parting found = parting(made(1), made(seed));
    EXPECT_EQ(found.verdict, Verdict::kTogether) << "seed " << seed << " from " << found.from_step;
  }
  const Parting same = parting(made(1), made(1));
  EXPECT_EQ(same.verdict, Verdict::kTogether);
  EXPECT_EQ(same.difference, 0);
}

TEST(Parting, CurvesThatMeetAgain) {
  const Parting found = parting(made(1), made(2, 1.0, 100, 200));
  EXPECT_EQ(found.verdict, Verdict::kMetAgain);
  EXPECT_EQ(found.from_step, 101);
  EXPECT_EQ(found.to_step, 200);
}

TEST(Parting, NothingIsSaidOfFewSteps) {
  EXPECT_EQ(parting(made(1, 0, 0, 0, 19), made(2, 9)).verdict, Verdict::kTooShort);
  EXPECT_EQ(parting(made(1, 0, 0, 0, 20), made(2, 9)).verdict, Verdict::kApart);
  TrainingRun empty = made(1), nan = made(1);
  empty.steps.clear();
  for (Step& step : nan.steps) step.loss = std::nan("");
  EXPECT_EQ(parting(made(1), empty).verdict, Verdict::kTooShort);
  EXPECT_EQ(parting(nan, made(1)).verdict, Verdict::kTooShort);
  EXPECT_EQ(parting(made(1), nan).num_pairs, 0);
}

/// The curve over the anchors that the weights have seen; steps of `size` anchors.
TrainingRun of_size(int64_t size, uint64_t seed, double shift = 0, int64_t from_anchors = 0) {
  return of_losses(102400 / size, size, [=](int64_t step) {
    const int64_t seen = (step - 1) * size;
    return 4 - 2e-5 * static_cast<double>(seen) + 0.05 * noise(step, seed) +
           (seen >= from_anchors ? shift : 0);
  });
}

TEST(Axis, StepsOfOtherSizesAreAlignedByAnchors) {
  const TrainingRun small = of_size(256, 1), large = of_size(512, 2);
  EXPECT_EQ(fitting_axis({small, small}), Axis::kStep);
  EXPECT_EQ(fitting_axis({small, large}), Axis::kAnchors);
  EXPECT_EQ(parting(small, large).verdict, Verdict::kApart) << "by steps, the larger are ahead";
  EXPECT_EQ(parting(small, large, Axis::kAnchors).verdict, Verdict::kTogether);
  EXPECT_EQ(parting(large, small, Axis::kAnchors).verdict, Verdict::kTogether);
  const Parting found = parting(small, of_size(512, 2, 0.5, 51200), Axis::kAnchors);
  EXPECT_EQ(found.verdict, Verdict::kApart);
  EXPECT_NEAR(static_cast<double>(found.from_anchors), 51200, 512 * 10);
  EXPECT_NEAR(found.difference, 0.5, 0.05);
}

/// A noisy falling curve over the anchors that the weights have seen: noise falls with a step's
/// size as a mean's does.
TrainingRun falling(int64_t size, uint64_t seed, double shift = 0, int64_t from_anchors = 0) {
  const double deviation = 2.0 / std::sqrt(static_cast<double>(size));
  return of_losses(57600 / size, size, [=](int64_t step) {
    const int64_t seen = (step - 1) * size;
    return 4 + 6 * std::exp(-static_cast<double>(seen) / 15000) + deviation * noise(step, seed) +
           (seen >= from_anchors ? shift : 0);
  });
}

void expect_mirrored(const Parting& found, const Parting& swapped) {
  EXPECT_EQ(found.verdict, swapped.verdict);
  EXPECT_EQ(found.num_pairs, swapped.num_pairs);
  EXPECT_EQ(found.difference, -swapped.difference);
  EXPECT_EQ(found.error, swapped.error);
}

// The larger steps see the curve at fewer places; that alone must not look like a parting. Noise
// parts two windows in a row in at most one comparison of a hundred (18 of 2000 with 96, 5 with
// 16).
TEST(Axis, StepsOfOtherSizesOfOneCurveStayTogether) {
  constexpr int kSeeds = 200, kMostParted = 6;
  for (const int64_t size : {16, 24, 64, 96}) {
    int parted = 0;
    for (int seed = 0; seed < kSeeds; ++seed) {
      const TrainingRun a = falling(64, 2 * seed + 1), b = falling(size, 2 * seed + 2);
      const Parting found = parting(a, b, Axis::kAnchors);
      expect_mirrored(found, parting(b, a, Axis::kAnchors));
      parted += found.verdict == Verdict::kTogether ? 0 : 1;
    }
    EXPECT_LE(parted, kMostParted) << "steps of 64 and " << size;
  }
}

TEST(Axis, AShiftIsFoundInBothOrders) {
  for (const int64_t size : {16, 24, 96}) {
    for (const double shift : {0.3, -0.3}) {
      const TrainingRun a = falling(64, 1), b = falling(size, 2, shift, 28800);
      const Parting found = parting(a, b, Axis::kAnchors), swapped = parting(b, a, Axis::kAnchors);
      expect_mirrored(found, swapped);
      EXPECT_EQ(found.verdict, Verdict::kApart) << size;
      EXPECT_NEAR(found.difference, shift, 4 * found.error) << size;
      const auto window = static_cast<double>(found.pairs_per_window * std::max<int64_t>(size, 64));
      EXPECT_NEAR(static_cast<double>(found.from_anchors), 28800, window) << size;
      EXPECT_NEAR(static_cast<double>(swapped.from_anchors), 28800, window) << size;
    }
  }
}

// Without noise nothing is left of a straight line, whatever its slope and the sizes.
TEST(Axis, AStraightLineIsComparedExactly) {
  const auto line = [](int64_t size) {
    return of_losses(9600 / size, size,
                     [=](int64_t step) { return 10 - 1e-3 * static_cast<double>(size * step); });
  };
  for (const int64_t size : {16, 24, 60, 64, 96}) {
    // Losses belong to the weights before a step: the larger step's line is that much lower.
    const Parting found = parting(line(64), line(size), Axis::kAnchors);
    EXPECT_NEAR(found.difference, 1e-3 * static_cast<double>(64 - size), 1e-12) << size;
    EXPECT_NEAR(found.error, 0, 1e-12) << size;
  }
}

// Steps of one size pair one to one, by step as by anchors.
TEST(Axis, StepsOfOneSizePairByNumber) {
  TrainingRun a = made(1), b = made(2, 0.1, 150);
  a.steps[30].loss = std::nan("");
  for (const auto& [first, second] : {std::pair(a, b), std::pair(b, a)}) {
    const Parting by_step = parting(first, second);
    const Parting by_anchors = parting(first, second, Axis::kAnchors);
    EXPECT_EQ(by_step.to_json(), by_anchors.to_json());
    EXPECT_EQ(by_step.num_pairs, 399);
  }
}

TEST(Parting, AtMostFiftyWindows) {
  for (const int64_t steps : {500, 549, 550, 1499}) {
    const Parting found = parting(made(1, 0, 0, 0, steps), made(2, 0, 0, 0, steps));
    EXPECT_EQ(found.num_pairs, steps);
    EXPECT_LE(found.num_pairs / found.pairs_per_window, 50) << steps;
    EXPECT_GT(found.num_pairs / found.pairs_per_window, 24) << steps;
  }
}

TEST(Smooth, WindowsHoldTheirSteps) {
  const std::vector<TrainingRun> runs = {made(1), made(1, 0, 0, 0, 150)};
  const auto windows = smooth(runs, Axis::kStep, 4);
  ASSERT_EQ(windows.size(), 4u);
  EXPECT_EQ(windows[1].begin, 100);
  EXPECT_EQ(windows[1].end, 200);
  EXPECT_EQ(windows[1].points[0].num_steps, 100);
  EXPECT_EQ(windows[1].points[1].num_steps, 50);
  EXPECT_EQ(windows[1].points[1].anchors_seen, 150 * 256);
  EXPECT_EQ(windows[2].points[1].num_steps, 0);
  double sum = 0;
  for (int i = 100; i < 200; ++i) sum += runs[0].steps[i].loss;
  EXPECT_NEAR(windows[1].points[0].loss, sum / 100, 1e-12);
  EXPECT_TRUE(smooth({TrainingRun()}, Axis::kStep, 4).empty());
  EXPECT_EQ(last_steps(runs[1], 20).num_steps, 20);
  EXPECT_EQ(last_steps(TrainingRun(), 20).num_steps, 0);
}

}  // namespace
}  // namespace dflash::runs
