// R-SAM-8: log-probabilities of committed tokens, drafted or not.
#include "decode/log_probs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "decode/engine.h"
#include "decode/fake_target.h"
#include "decode/test_proposers.h"

namespace dflash::decode {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

TEST(LogProbs, KnownDistribution) {
  const std::vector<float> logits = {std::log(1.0f), std::log(5.0f), kImpossible, std::log(2.0f),
                                     std::log(2.0f)};
  const TokenLogProbs two = log_probs(logits, 0, 2);
  EXPECT_NEAR(two.log_prob, std::log(0.1), 1e-7);
  ASSERT_EQ(two.top.size(), 2u);
  EXPECT_EQ(two.top[0].first, 1);
  EXPECT_NEAR(two.top[0].second, std::log(0.5), 1e-7);
  EXPECT_EQ(two.top[1].first, 3);  // ties: the lower id
  EXPECT_EQ(log_probs(logits, 1, 0).top.size(), 0u);
  EXPECT_EQ(log_probs(logits, 1, 5).top.size(), 4u);  // what cannot be said is not listed
  EXPECT_EQ(log_probs(logits, 2, 0).log_prob, kImpossible);
}

TEST(LogProbs, LargeLogitsDoNotOverflow) {
  EXPECT_NEAR(log_probs(std::vector<float>{1000.0f, 1000.0f}, 0, 1).log_prob, std::log(0.5), 1e-9);
}

// One entry a token, whatever was drafted, equal to a plain run's; greedy and sampled.
TEST(LogProbs, ABlockOfThreeAcceptedAndItsBonusTokenHaveFour) {
  const fake::FakeTarget target({.vocab = 40});
  for (const double temperature : {0.0, 0.7}) {
    const Request request{.prompt = {1, 2, 3},
                          .sampling = {.temperature = temperature, .seed = 5},
                          .max_new_tokens = 9,
                          .num_top_log_probs = 3};
    const Result plain = generate(target, nullptr, {request}).results[0];
    fake::Oracle oracle;
    oracle.add(request.prompt, plain.tokens);
    fake::TestProposer proposer("right", 3, [&](const Proposer::Sequence& sequence, int64_t) {
      return oracle.next(sequence.ids, sequence.room);
    });
    std::vector<Commit> commits;
    EngineOptions options;
    options.on_commit = [&](const Commit& commit) { commits.push_back(commit); };
    const Result drafted = generate(target, &proposer, {request}, options).results[0];
    ASSERT_EQ(commits.size(), 3u);
    EXPECT_EQ(commits[1].accepted, 3);
    EXPECT_EQ(commits[1].log_probs.size(), 4u);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    ASSERT_EQ(plain.log_probs.size(), 9u);
    ASSERT_EQ(drafted.log_probs.size(), 9u);
    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(drafted.log_probs[i].log_prob, plain.log_probs[i].log_prob) << i;
      EXPECT_EQ(drafted.log_probs[i].top, plain.log_probs[i].top) << i;
      EXPECT_LT(plain.log_probs[i].log_prob, 0.0);
      const int64_t likeliest = plain.log_probs[i].top[0].first;
      EXPECT_TRUE(temperature > 0.0 || likeliest == plain.tokens[i]) << i;
    }
  }
}

TEST(LogProbs, NobodyAskedNobodyPays) {
  const fake::FakeTarget target({.vocab = 40});
  const auto run = generate(target, nullptr, {{.prompt = {1}, .max_new_tokens = 3}});
  EXPECT_TRUE(run.results[0].log_probs.empty());
}

}  // namespace
}  // namespace dflash::decode
