// R-DEC-5, R-DEC-6, R-DEC-8, R-SAM-7: the text is the target's own, whatever the proposer does,
// greedy and sampled, alone and in a batch, in f32 and bf16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decode/engine.h"
#include "decode/fake_target.h"
#include "decode/proposers.h"
#include "decode/test_proposers.h"

namespace dflash::decode {
namespace {

constexpr int64_t kMask = 0, kStop = 30;

struct Case {
  nn::Compute compute;
  double temperature;
  int64_t batch, memory;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}{}Batch{}{}", info.param.compute == nn::Compute::kF32 ? "F32" : "Bf16",
                     info.param.temperature == 0 ? "Greedy" : "Sampled", info.param.batch,
                     info.param.memory == 0 ? "" : "Looping");
}

/// Prompts of 1 to 40 tokens, budgets of 1 to 60, one seed each.
std::vector<Request> mixed_requests(double temperature, int64_t count) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    Request request;
    const uint64_t key = static_cast<uint64_t>(i);
    const int64_t length = i == 0 ? 1 : 1 + static_cast<int64_t>(uniform_below(40, {1, key}));
    for (int64_t t = 0; t < length; ++t) {
      request.prompt.push_back(
          static_cast<int64_t>(uniform_below(30, {2, key, static_cast<uint64_t>(t)})));
    }
    request.sampling = {.temperature = temperature, .seed = 100 + key};
    request.max_new_tokens = i == 1 ? 1 : 1 + static_cast<int64_t>(uniform_below(60, {3, key}));
    request.stop_ids = {kStop};
    requests.push_back(request);
  }
  return requests;
}

/// Each request alone, one token a pass.
std::vector<Result> plain(const fake::FakeTarget& target, const std::vector<Request>& requests) {
  std::vector<Result> results;
  for (const Request& request : requests) {
    results.push_back(generate(target, nullptr, {request}).results[0]);
  }
  return results;
}

void expect_same_texts(const std::vector<Result>& got, const std::vector<Result>& expected,
                       const std::string& who) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].tokens, expected[i].tokens) << who << ", request " << i;
    EXPECT_EQ(got[i].finish, expected[i].finish) << who << ", request " << i;
  }
}

class Lossless : public ::testing::TestWithParam<Case> {};

TEST_P(Lossless, TextIsTheTargetsOwn) {
  const Case c = GetParam();
  const fake::FakeTarget target({.compute = c.compute, .memory = c.memory});
  const std::vector<Request> requests = mixed_requests(c.temperature, 12);
  const std::vector<Result> expected = plain(target, requests);
  fake::Oracle oracle;
  for (size_t i = 0; i < requests.size(); ++i) oracle.add(requests[i].prompt, expected[i].tokens);

  const EngineOptions options = {.max_batch = c.batch, .prefill_rows = 16};
  expect_same_texts(generate(target, nullptr, requests, options).results, expected, "plain");
  for (fake::TestProposer& proposer : fake::all_characters(oracle, 31, kMask, kStop)) {
    expect_same_texts(generate(target, &proposer, requests, options).results, expected,
                      proposer.name());
  }
  const auto lookup = make_lookup_proposer();
  expect_same_texts(generate(target, lookup.get(), requests, options).results, expected, "lookup");
}

INSTANTIATE_TEST_SUITE_P(
    All, Lossless,
    ::testing::Values(Case{nn::Compute::kF32, 0.0, 1, 0}, Case{nn::Compute::kF32, 0.0, 8, 0},
                      Case{nn::Compute::kF32, 0.0, 8, 2}, Case{nn::Compute::kF32, 1.0, 1, 0},
                      Case{nn::Compute::kF32, 1.0, 8, 0}, Case{nn::Compute::kBF16, 0.0, 1, 0},
                      Case{nn::Compute::kBF16, 0.0, 8, 0}, Case{nn::Compute::kBF16, 1.0, 8, 0},
                      Case{nn::Compute::kBF16, 1.0, 8, 2}),
    case_name);

TEST(Lossless, GreedyAndSampledRequestsShareAPass) {
  const fake::FakeTarget target({});
  std::vector<Request> requests = mixed_requests(0.0, 8);
  for (size_t i = 0; i < requests.size(); i += 2) requests[i].sampling.temperature = 0.8;
  const std::vector<Result> expected = plain(target, requests);
  fake::Oracle oracle;
  for (size_t i = 0; i < requests.size(); ++i) oracle.add(requests[i].prompt, expected[i].tokens);
  for (fake::TestProposer& proposer : fake::all_characters(oracle, 31, kMask, kStop)) {
    const auto run = generate(target, &proposer, requests, {.max_batch = 8});
    expect_same_texts(run.results, expected, proposer.name());
  }
}

TEST(Lossless, TokensAPassAreTheBlockForARightDrafterAndOneForAWrongOne) {  // R-DEC-8
  const fake::FakeTarget target({});
  Request request{.prompt = {3, 4, 5}, .max_new_tokens = 41};
  const Result expected = generate(target, nullptr, {request}).results[0];
  ASSERT_EQ(expected.tokens.size(), 41u);
  fake::Oracle oracle;
  oracle.add(request.prompt, expected.tokens);
  std::vector<fake::TestProposer> all = fake::all_characters(oracle, 31, kMask, kStop);
  const Result right = generate(target, &all[0], {request}).results[0];
  EXPECT_DOUBLE_EQ(right.counts.tau(), 4.0);  // B = 4
  EXPECT_EQ(right.counts.passes(), 10);
  const Result wrong = generate(target, &all[1], {request}).results[0];
  EXPECT_DOUBLE_EQ(wrong.counts.tau(), 1.0);
  EXPECT_EQ(wrong.counts.passes(), 40);
  EXPECT_DOUBLE_EQ(expected.counts.tau(), 1.0);
}

TEST(Lossless, StatesHoldTheCommittedTextBeforeEveryPass) {  // R-DEC-5
  fake::FakeTarget target({});
  Request request{.prompt = {9, 8, 7, 6}, .max_new_tokens = 60};
  const Result expected = generate(target, nullptr, {request}).results[0];
  fake::Oracle oracle;
  oracle.add(request.prompt, expected.tokens);
  std::vector<fake::TestProposer> all = fake::all_characters(oracle, 31, kMask, kStop);
  fake::TestProposer& mixed = all[6];
  ASSERT_EQ(mixed.name(), "mixed");
  target.record = true;
  const Result got = generate(target, &mixed, {request}).results[0];
  EXPECT_EQ(got.tokens, expected.tokens);
  std::vector<int64_t> text = request.prompt;
  text.insert(text.end(), expected.tokens.begin(), expected.tokens.end());
  for (const auto& pass : target.passes) {
    ASSERT_EQ(pass.size(), 1u);
    const auto& history = pass[0].history;
    EXPECT_TRUE(std::equal(history.begin(), history.end(), text.begin()));
    EXPECT_EQ(pass[0].ids[0], text[history.size()]);  // the anchor follows the state
  }
  // Accept 2 of 7, plain, accept 0, accept all.
  EXPECT_THAT(got.counts.histogram(),
              ::testing::Contains(::testing::Ge(2)).Times(::testing::Ge(3)));
}

TEST(Lossless, TheMaskIdIsAnOrdinaryToken) {  // R-DEC-6
  const std::vector<int64_t> text = {101, 102, 0, 103};
  const fake::FakeTarget target({.vocab = 128}, fake::scripted([&](auto history) {
                                  return text[std::min<size_t>(history.size() - 2, 3)];
                                }));
  Request request{.prompt = {7, 7}, .max_new_tokens = 4};
  for (int64_t draft : {0, 102}) {
    fake::TestProposer proposer("constant", 3, [draft](const auto& s, int64_t) {
      return std::vector<int64_t>(s.room, draft);
    });
    EXPECT_EQ(generate(target, &proposer, {request}).results[0].tokens, text);
  }
}

}  // namespace
}  // namespace dflash::decode
