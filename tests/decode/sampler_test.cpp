// R-SAM-1, R-SAM-4, R-SAM-7, R-DEC-7: the target's choice from logits.
#include "decode/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/rng.h"

namespace dflash::decode {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> logits_of(const std::vector<double>& probability) {
  std::vector<float> logits;
  for (double p : probability) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

/// |share - p| within 3 standard errors of a share of n draws.
void expect_share(double share, double p, int64_t n) {
  EXPECT_NEAR(share, p, 3.0 * std::sqrt(p * (1.0 - p) / static_cast<double>(n)));
}

TEST(Sampler, GreedyTakesTheLowestIndexOfATie) {  // R-DEC-7
  EXPECT_EQ(choose(std::vector<float>{3, 5, 5, 1}, {}, 0), 1);
  EXPECT_THAT(distribution(std::vector<float>{3, 5, 5, 1}, {}), ElementsAre(0, 1, 0, 0));
}

TEST(Sampler, TinyTemperatureAndTopOneAreArgmax) {  // R-SAM-4
  const std::vector<float> logits = {1.0f, 3.0f, 2.999f, -kInf, 3.0f};
  for (int64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(choose(std::vector<float>{1.0f, 3.0f, 2.999f, -kInf},
                     {.temperature = 1e-6, .seed = 5}, position),
              1);
    // A tie at the border of top-k keeps the lowest index.
    EXPECT_EQ(choose(logits, {.temperature = 1.0, .top_k = 1, .seed = 5}, position), 1);
  }
  for (double p : distribution(logits, {.temperature = 1e-6})) EXPECT_TRUE(std::isfinite(p));
}

TEST(Sampler, FrequenciesFollowTheDistribution) {  // R-SAM-7
  const std::vector<double> p = {0.5, 0.25, 0.2, 0.05};
  const std::vector<float> logits = logits_of(p);
  constexpr int64_t kDraws = 20000;
  std::vector<int64_t> counts(4, 0);
  for (int64_t i = 0; i < kDraws; ++i) {
    counts[choose(logits, {.temperature = 1.0, .seed = 11}, i)] += 1;
  }
  double chi_square = 0.0;
  for (size_t v = 0; v < 4; ++v) {
    const double expected = p[v] * kDraws;
    expect_share(static_cast<double>(counts[v]) / kDraws, p[v], kDraws);
    chi_square += (counts[v] - expected) * (counts[v] - expected) / expected;
  }
  EXPECT_LT(chi_square, 16.27);  // 3 degrees of freedom, 0.1 %
}

TEST(Sampler, EqualityTestKeepsTheLawWhateverTheDraft) {  // R-SAM-1
  const std::vector<float> logits = logits_of({0.7, 0.3});
  constexpr int64_t kDraws = 20000;
  int64_t zeros = 0, argmax_accepted = 0, drawn_accepted = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const int64_t token = choose(logits, {.temperature = 1.0, .seed = 3}, i);
    const int64_t drawn = uniform01({99, static_cast<uint64_t>(i)}) < 0.4 ? 0 : 1;
    zeros += token == 0;
    argmax_accepted += token == 0;  // the argmax draft is 0
    drawn_accepted += token == drawn;
  }
  expect_share(static_cast<double>(zeros) / kDraws, 0.7, kDraws);
  expect_share(static_cast<double>(argmax_accepted) / kDraws, 0.7, kDraws);
  expect_share(static_cast<double>(drawn_accepted) / kDraws, 0.46, kDraws);
}

TEST(Sampler, TemperatureThenTopKThenTopP) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.3, 0.2});
  EXPECT_THAT(distribution(logits, {.temperature = 1.0, .top_k = 2}),
              ElementsAre(0, DoubleNear(4.0 / 7, 1e-6), DoubleNear(3.0 / 7, 1e-6), 0));
  // 0.4 + 0.3 reaches 0.65; of the top three, 0.4/0.9 + 0.3/0.9 reaches 0.75.
  EXPECT_THAT(distribution(logits, {.temperature = 1.0, .top_p = 0.65}),
              ElementsAre(0, DoubleNear(4.0 / 7, 1e-6), DoubleNear(3.0 / 7, 1e-6), 0));
  EXPECT_THAT(distribution(logits, {.temperature = 1.0, .top_k = 3, .top_p = 0.75}),
              ElementsAre(0, DoubleNear(4.0 / 7, 1e-6), DoubleNear(3.0 / 7, 1e-6), 0));
  // The likeliest token survives any top-p.
  EXPECT_THAT(distribution(logits, {.temperature = 1.0, .top_p = 1e-9}), ElementsAre(0, 1, 0, 0));
  // Temperature 2: probabilities go with the square root.
  const double sum = std::sqrt(0.1) + std::sqrt(0.4) + std::sqrt(0.3) + std::sqrt(0.2);
  EXPECT_NEAR(distribution(logits, {.temperature = 2.0})[1], std::sqrt(0.4) / sum, 1e-6);
}

/// Top-p written plainly: sort everything, keep the shortest prefix that reaches it.
std::vector<double> plain_top_p(const std::vector<float>& logits, double top_p) {
  std::vector<double> p = distribution(logits, {.temperature = 1.0});
  std::vector<size_t> order(p.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  double reached = 0.0;
  std::vector<double> kept(p.size(), 0.0);
  for (size_t i : order) {
    if (reached >= top_p) break;
    reached += p[i];
    kept[i] = p[i];
  }
  for (double& value : kept) value /= reached;
  return kept;
}

TEST(Sampler, TopPEqualsItsPlainTwin) {
  for (uint64_t trial = 0; trial < 20; ++trial) {
    std::vector<float> logits;
    for (uint64_t v = 0; v < 300; ++v) {
      logits.push_back(static_cast<float>(3.0 * normal01({trial, v})));
    }
    const double top_p = 0.05 + 0.9 * uniform01({trial, 1000});
    const auto got = distribution(logits, {.temperature = 1.0, .top_p = top_p});
    const auto expected = plain_top_p(logits, top_p);
    for (size_t v = 0; v < got.size(); ++v) ASSERT_NEAR(got[v], expected[v], 1e-12) << v;
  }
}

TEST(Sampler, ImpossibleTokensAreNeverDrawn) {
  const std::vector<float> logits = {-kInf, 0.0f, -kInf, 0.0f, -kInf};
  for (int64_t i = 0; i < 200; ++i) {
    const int64_t token = choose(logits, {.temperature = 5.0, .seed = 1}, i);
    EXPECT_TRUE(token == 1 || token == 3) << token;
  }
  EXPECT_THROW(choose(std::vector<float>{-kInf, -kInf}, {.temperature = 1.0}, 0), Error);
  EXPECT_THROW(choose(std::vector<float>{NAN, NAN}, {}, 0), Error);
  EXPECT_THROW(choose(std::vector<float>{0, kInf}, {.temperature = 1.0}, 0), Error);
}

TEST(Sampler, RefusesValuesOutOfRange) {
  EXPECT_THROW(check_sampling({.temperature = -1.0}), Error);
  EXPECT_THROW(check_sampling({.temperature = NAN}), Error);
  EXPECT_THROW(check_sampling({.top_k = -1}), Error);
  EXPECT_THROW(check_sampling({.top_p = 0.0}), Error);
  EXPECT_THROW(check_sampling({.top_p = 1.5}), Error);
  EXPECT_NO_THROW(check_sampling({.temperature = 0.7, .top_k = 40, .top_p = 0.95}));
}

}  // namespace
}  // namespace dflash::decode
