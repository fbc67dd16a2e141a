// Random numbers are part of checkpoints and of sampled text: their values are pinned.
#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace dflash {
namespace {

TEST(Rng, KnownAnswers) {
  EXPECT_EQ(mix({}), 0x243f6a8885a308d3ULL);
  EXPECT_EQ(mix({0}), 0x992acabc5698d28fULL);
  EXPECT_EQ(mix({1}), 0xaa6cde108f6d8bddULL);
  EXPECT_EQ(mix({1, 2}), 0xd4bf3bdcc636fbd6ULL);
  EXPECT_EQ(mix({2, 1}), 0xfe9e88796a06f2c1ULL);
  EXPECT_EQ(mix({UINT64_MAX, 7, 0}), 0x09fe9cc62fd26306ULL);
  EXPECT_EQ(uniform01({42, 7}), 0x1.a840ef1a1f950p-3);
  EXPECT_EQ(uniform_below(1000, {42, 7}), 207U);
  EXPECT_NEAR(normal01({42, 7}), 0.3764179697932284, 1e-12);
}

TEST(Rng, KeysAreToldApart) {
  std::set<uint64_t> seen;
  for (uint64_t a = 0; a < 60; ++a) {
    EXPECT_TRUE(seen.insert(mix({a})).second);
    for (uint64_t b = 0; b < 60; ++b) EXPECT_TRUE(seen.insert(mix({a, b})).second);
  }
}

TEST(Rng, UniformBelowIsEvenAndInRange) {
  constexpr uint64_t kBound = 10, kDraws = 100000;
  std::vector<double> counts(kBound);
  for (uint64_t i = 0; i < kDraws; ++i) counts.at(uniform_below(kBound, {3, i})) += 1;
  double chi_square = 0;
  for (const double count : counts) {
    chi_square += (count - kDraws / kBound) * (count - kDraws / kBound) / (kDraws / kBound);
  }
  EXPECT_LT(chi_square, 27.9);  // 9 degrees of freedom, p = 0.001
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(uniform_below(1, {i}), 0U);
  EXPECT_LT(uniform_below(UINT64_MAX, {1}), UINT64_MAX);
}

TEST(Rng, MomentsOfUniformAndNormal) {
  constexpr int kDraws = 100000;
  double uniform_sum = 0, sum = 0, squares = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = uniform01({5, i}), n = normal01({5, i});
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ASSERT_TRUE(std::isfinite(n));
    uniform_sum += u;
    sum += n;
    squares += n * n;
  }
  // Four standard errors each.
  EXPECT_NEAR(uniform_sum / kDraws, 0.5, 4 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(sum / kDraws, 0.0, 4 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0, 4 * std::sqrt(2.0 / kDraws));
}

}  // namespace
}  // namespace dflash
