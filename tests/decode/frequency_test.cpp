// R-SAM-1, R-SAM-2, R-SAM-3, R-SAM-7 through the whole engine: frequencies of 20 000 tokens that
// were drafted, verified and committed, within 3 standard errors of the target's law.
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "decode/engine.h"
#include "decode/fake_target.h"
#include "decode/test_proposers.h"

namespace dflash::decode {
namespace {

constexpr int64_t kDraws = 20000;

/// The same law after every history.
fake::FakeTarget constant_target(std::vector<double> p) {
  const int64_t vocab = static_cast<int64_t>(p.size());
  return fake::FakeTarget({.vocab = vocab, .max_positions = kDraws + 10},
                          [p](std::span<const int64_t>, std::span<float> row) {
                            for (size_t v = 0; v < p.size(); ++v) {
                              row[v] = static_cast<float>(std::log(p[v]));
                            }
                          });
}

Result draw(const fake::FakeTarget& target, Proposer* proposer, int64_t top_k = 0) {
  const Request request{.prompt = {0},
                        .sampling = {.temperature = 1.0, .top_k = top_k, .seed = 21},
                        .max_new_tokens = kDraws};
  return generate(target, proposer, {request}).results[0];
}

double share(const std::vector<int64_t>& tokens, int64_t id) {
  return static_cast<double>(std::count(tokens.begin(), tokens.end(), id)) /
         static_cast<double>(tokens.size());
}

double error(double p, double n) {
  return 3.0 * std::sqrt(p * (1.0 - p) / n);
}

TEST(Frequencies, ArgmaxDraftsAreAcceptedWithTheirProbability) {  // R-SAM-1
  const fake::FakeTarget target = constant_target({0.7, 0.3});
  fake::TestProposer proposer("argmax", 1,
                              [](const auto&, int64_t) { return std::vector<int64_t>{0}; });
  const Result result = draw(target, &proposer);
  const double passes = static_cast<double>(result.counts.passes());
  EXPECT_NEAR(result.counts.slot_acceptance()[0], 0.7, error(0.7, passes));
  EXPECT_NEAR(share(result.tokens, 0), 0.7, error(0.7, kDraws));
}

TEST(Frequencies, DrawnDraftsAreAcceptedWithTheOverlap) {  // R-SAM-1
  const fake::FakeTarget target = constant_target({0.7, 0.3});
  fake::TestProposer proposer("drawn from (.4, .6)", 1, [](const auto&, int64_t call) {
    return std::vector<int64_t>{uniform01({8, static_cast<uint64_t>(call)}) < 0.4 ? 0 : 1};
  });
  const Result result = draw(target, &proposer);
  const double passes = static_cast<double>(result.counts.passes());
  EXPECT_NEAR(result.counts.slot_acceptance()[0], 0.46, error(0.46, passes));
  EXPECT_NEAR(share(result.tokens, 0), 0.7, error(0.7, kDraws));
}

// R-SAM-2: the argmax of q = (.4, .6) is a draft like any other. Accepted with p / q = .5 the text
// would be .5 / .5; accepted where the target's own draw equals it, q never matters.
TEST(Frequencies, ArgmaxOfAnotherLawKeepsTheTargets) {
  const fake::FakeTarget target = constant_target({0.7, 0.3});
  fake::TestProposer proposer("argmax of q", 1,
                              [](const auto&, int64_t) { return std::vector<int64_t>{1}; });
  const Result result = draw(target, &proposer);
  const double passes = static_cast<double>(result.counts.passes());
  EXPECT_NEAR(result.counts.slot_acceptance()[0], 0.3, error(0.3, passes));
  EXPECT_NEAR(share(result.tokens, 0), 0.7, error(0.7, kDraws));
}

// R-SAM-3: a draft that top-k left no probability is always rejected and what comes is p; a draft
// that has all of it never is.
TEST(Frequencies, ImpossibleDraftsAreAlwaysRejectedCertainOnesNever) {
  const fake::FakeTarget target = constant_target({0.5, 0.25, 0.2, 0.05});
  const auto always = [](int64_t id) {
    return fake::TestProposer("always one", 1,
                              [id](const auto&, int64_t) { return std::vector<int64_t>{id}; });
  };
  fake::TestProposer impossible = always(3), certain = always(0);
  const Result none = draw(target, &impossible, /*top_k=*/2);
  EXPECT_EQ(none.counts.accepted(), 0);
  EXPECT_NEAR(share(none.tokens, 0), 2.0 / 3, error(2.0 / 3, kDraws));
  EXPECT_NEAR(share(none.tokens, 1), 1.0 / 3, error(1.0 / 3, kDraws));
  const Result all = draw(target, &certain, /*top_k=*/1);
  EXPECT_EQ(all.counts.slot_acceptance()[0], 1.0);
  EXPECT_EQ(share(all.tokens, 0), 1.0);
}

TEST(Frequencies, FourTokenToyKeepsItsLaw) {  // R-SAM-7
  const std::vector<double> p = {0.5, 0.25, 0.2, 0.05};
  const fake::FakeTarget target = constant_target(p);
  fake::TestProposer proposer("blocks", 3, [](const auto& s, int64_t call) {
    std::vector<int64_t> ids(s.room);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int64_t>(uniform_below(4, {9, static_cast<uint64_t>(call), i}));
    }
    return ids;
  });
  const Result drafted = draw(target, &proposer);
  EXPECT_EQ(drafted.tokens, draw(target, nullptr).tokens);  // the same seed, the same tokens
  EXPECT_GT(drafted.counts.accepted(), 2000);
  double chi_square = 0.0;
  for (int64_t v = 0; v < 4; ++v) {
    const double got = share(drafted.tokens, v);
    EXPECT_NEAR(got, p[v], error(p[v], kDraws)) << v;
    chi_square += kDraws * (got - p[v]) * (got - p[v]) / p[v];
  }
  EXPECT_LT(chi_square, 16.27);  // 3 degrees of freedom, 0.1 %
}

}  // namespace
}  // namespace dflash::decode
