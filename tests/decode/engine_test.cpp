// R-DEC-1, R-DEC-2, stop tokens, budgets and the context's end, slots, streaming and taps.
#include "decode/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "decode/fake_target.h"
#include "decode/test_proposers.h"

namespace dflash::decode {
namespace {

using ::testing::ElementsAre;

/// Greedy text by position; ids past its end are 0.
fake::HiddenFunction text_by_position(std::map<size_t, int64_t> text) {
  return fake::scripted([text = std::move(text)](std::span<const int64_t> history) {
    const auto found = text.find(history.size());
    return found == text.end() ? int64_t{0} : found->second;
  });
}

fake::TestProposer constant_drafts(std::vector<int64_t> drafts, int64_t max_proposals = 3) {
  return {"constant", max_proposals, [drafts](const auto&, int64_t) { return drafts; }};
}

// R-DEC-1
TEST(Engine, BookkeepingOfOneBlock) {
  fake::FakeTarget target({.vocab = 128},
                          text_by_position({{5, 50}, {6, 10}, {7, 11}, {8, 99}, {9, 42}}));
  target.record = true;
  std::vector<Commit> commits;
  std::vector<size_t> context_lengths;  // of the drafter when it is asked
  fake::TestProposer watching("watching", 3, [&](const Proposer::Sequence& s, int64_t call) {
    context_lengths.push_back(s.ids.size() - 1);
    EXPECT_EQ(s.ids.back(), call == 0 ? 50 : 99);
    return std::vector<int64_t>{10, 11, 12};
  });
  EngineOptions options;
  options.on_commit = [&](const Commit& commit) { commits.push_back(commit); };
  Request request{.prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 8};
  int passes = 0;
  options.should_stop = [&] { return ++passes > 3; };  // prefill and two blocks
  generate(target, &watching, {request}, options);

  ASSERT_EQ(target.passes.size(), 3u);
  EXPECT_THAT(target.passes[0][0].positions, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(target.passes[1][0].positions, ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(target.passes[1][0].ids, ElementsAre(50, 10, 11, 12));
  EXPECT_THAT(target.passes[2][0].history, ElementsAre(1, 2, 3, 4, 5, 50, 10, 11));
  EXPECT_THAT(target.passes[2][0].positions, ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(context_lengths, ElementsAre(5, 8));
  ASSERT_EQ(commits.size(), 3u);
  EXPECT_THAT(commits[0].tokens, ElementsAre(50));
  EXPECT_THAT(commits[1].tokens, ElementsAre(10, 11, 99));
  EXPECT_EQ(commits[1].accepted, 2);
  EXPECT_EQ(commits[1].proposed, 3);
}

TEST(Engine, AcceptAllAndAcceptNone) {  // R-DEC-2
  const auto start_after = [](std::map<size_t, int64_t> text) {
    fake::FakeTarget target({.vocab = 128}, text_by_position(std::move(text)));
    target.record = true;
    fake::TestProposer proposer = constant_drafts({10, 11, 12});
    EngineOptions options;
    int polls = 0;
    options.should_stop = [&] { return ++polls > 3; };
    Request request{.prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 30};
    const auto run = generate(target, &proposer, {request}, options);
    EXPECT_EQ(proposer.contexts[0].size(), target.passes[2][0].history.size() + 1);
    return std::pair(target.passes[2][0].history.size(), run.results[0].tokens);
  };
  const auto all = start_after({{5, 50}, {6, 10}, {7, 11}, {8, 12}, {9, 13}});
  EXPECT_EQ(all.first, 9u);
  EXPECT_THAT(all.second, ElementsAre(50, 10, 11, 12, 13, 0));
  const auto none = start_after({{5, 50}, {6, 77}});
  EXPECT_EQ(none.first, 6u);
  EXPECT_THAT(none.second, ElementsAre(50, 77, 0));
}

TEST(Engine, StopTokenInsideTheAcceptedRun) {  // DEC-08, EV-03, R-SV-7
  const fake::FakeTarget target({.vocab = 128},
                                text_by_position({{2, 50}, {3, 10}, {4, 9}, {5, 12}, {6, 13}}));
  fake::TestProposer proposer = constant_drafts({10, 9, 12});
  std::vector<int64_t> streamed;
  EngineOptions options;
  options.on_commit = [&](const Commit& commit) {
    streamed.insert(streamed.end(), commit.tokens.begin(), commit.tokens.end());
  };
  Request request{.prompt = {1, 2}, .max_new_tokens = 30, .stop_ids = {8, 9}};
  const auto run = generate(target, &proposer, {request}, options);
  EXPECT_THAT(run.results[0].tokens, ElementsAre(50, 10, 9));
  EXPECT_THAT(streamed, ElementsAre(50, 10, 9));
  EXPECT_EQ(run.results[0].finish, Finish::kStop);
  EXPECT_EQ(run.results[0].counts.committed(), 2);
  EXPECT_EQ(run.results[0].counts.accepted(), 2);
  EXPECT_EQ(run.results[0].counts.passes(), 1);
  EXPECT_EQ(run.decode_tokens, 2);
}

TEST(Engine, StopTokenFromThePrefill) {
  const fake::FakeTarget target({.vocab = 16}, text_by_position({{2, 9}}));
  fake::TestProposer proposer = constant_drafts({1});
  const auto run = generate(target, &proposer, {Request{.prompt = {1, 2}, .stop_ids = {9}}});
  EXPECT_THAT(run.results[0].tokens, ElementsAre(9));
  EXPECT_EQ(run.results[0].counts.passes(), 0);
  EXPECT_EQ(proposer.calls, 0);
  EXPECT_TRUE(run.finished[0]);
}

TEST(Engine, BudgetsAreExact) {
  const fake::FakeTarget target({.vocab = 16}, text_by_position({}));  // always 0
  for (int64_t budget : {1, 2, 3, 4, 5, 6, 9}) {
    fake::TestProposer proposer = constant_drafts({0, 0, 0});
    const Request request{.prompt = {5}, .max_new_tokens = budget};
    const Result result = generate(target, &proposer, {request}).results[0];
    EXPECT_EQ(static_cast<int64_t>(result.tokens.size()), budget);
    EXPECT_EQ(result.finish, Finish::kLength);
    EXPECT_EQ(result.counts.committed(), budget - 1);
  }
}

TEST(Engine, ContextEndShrinksTheBlock) {  // DEC-30: at the limit - 1, the limit, the limit + 1
  const fake::FakeTarget target({.vocab = 16, .max_positions = 20}, text_by_position({}));
  for (int64_t length : {1, 12, 17, 18, 19, 20}) {
    fake::TestProposer proposer = constant_drafts({0, 0, 0});
    const Request request{.prompt = std::vector<int64_t>(length, 3), .max_new_tokens = 100};
    const Result plain = generate(target, nullptr, {request}).results[0];
    const Result drafted = generate(target, &proposer, {request}).results[0];
    EXPECT_EQ(static_cast<int64_t>(plain.tokens.size()), 21 - length);
    EXPECT_EQ(plain.finish, Finish::kContext);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.finish, Finish::kContext);
  }
  EXPECT_THROW(generate(target, nullptr, {Request{.prompt = std::vector<int64_t>(21, 3)}}), Error);
}

TEST(Engine, RefusesImpossibleRequests) {
  const fake::FakeTarget target({.vocab = 16});
  EXPECT_THROW(generate(target, nullptr, {Request{}}), Error);
  EXPECT_THROW(generate(target, nullptr, {Request{.prompt = {16}}}), Error);
  EXPECT_THROW(generate(target, nullptr, {Request{.prompt = {-1}}}), Error);
  EXPECT_THROW(generate(target, nullptr, {Request{.prompt = {1}, .max_new_tokens = 0}}), Error);
  EXPECT_THROW(generate(target, nullptr, {Request{.prompt = {1}, .sampling = {.temperature = -1}}}),
               Error);
  EXPECT_THROW(generate(target, nullptr, {Request{.prompt = {1}}}, {.max_batch = 0}), Error);
  EXPECT_TRUE(generate(target, nullptr, {}).results.empty());
}

TEST(Engine, FinishedSequencesMakeRoomForWaitingOnes) {
  fake::FakeTarget target({});
  target.record = true;
  std::vector<Request> requests;
  for (int64_t i = 0; i < 20; ++i) {
    requests.push_back(
        {.prompt = std::vector<int64_t>(1 + (7 * i) % 30, i), .max_new_tokens = 1 + (11 * i) % 17});
  }
  std::vector<size_t> finished;
  std::vector<std::vector<int64_t>> streamed(requests.size());
  EngineOptions options = {.max_batch = 3, .prefill_rows = 8};
  options.on_finish = [&](size_t request, const Result& result) {
    finished.push_back(request);
    EXPECT_EQ(static_cast<int64_t>(result.tokens.size()), requests[request].max_new_tokens);
  };
  options.on_commit = [&](const Commit& commit) {
    auto& tokens = streamed[commit.request];
    tokens.insert(tokens.end(), commit.tokens.begin(), commit.tokens.end());
  };
  const auto run = generate(target, nullptr, requests, options);
  bool shared = false;
  for (const auto& pass : target.passes) {
    EXPECT_LE(pass.size(), 3u);
    size_t prompt_rows = 0, single = 0;
    for (const auto& segment : pass) {
      const bool is_prompt = segment.history.empty() || segment.ids.size() > 1;
      (is_prompt ? prompt_rows : single) += segment.ids.size();
    }
    EXPECT_LE(prompt_rows, 8u);
    shared = shared || (prompt_rows > 0 && single > 0);
  }
  EXPECT_TRUE(shared);  // prompt rows and decoding rows in one pass
  EXPECT_EQ(finished.size(), requests.size());
  int64_t decoded = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(run.finished[i]);
    EXPECT_EQ(streamed[i], run.results[i].tokens);
    decoded += requests[i].max_new_tokens - 1;
  }
  EXPECT_EQ(run.decode_tokens, decoded);
  EXPECT_GT(run.prefill_seconds, 0.0);
  EXPECT_GT(run.decode_seconds, 0.0);
}

TEST(Engine, StopsBetweenPassesWhenAsked) {
  const fake::FakeTarget target({});
  std::vector<Request> requests(3, Request{.prompt = {1, 2}, .max_new_tokens = 10});
  requests[0].max_new_tokens = 2;
  int polls = 0;
  std::vector<size_t> finished;
  EngineOptions options = {.max_batch = 2};
  options.should_stop = [&] { return ++polls > 4; };
  options.on_finish = [&](size_t request, const Result&) { finished.push_back(request); };
  const auto run = generate(target, nullptr, requests, options);
  EXPECT_THAT(run.finished, ElementsAre(true, false, false));
  EXPECT_THAT(finished, ElementsAre(0));
  EXPECT_EQ(run.results[0].tokens.size(), 2u);
  EXPECT_EQ(run.results[1].tokens.size(), 4u);
  EXPECT_EQ(run.results[2].tokens.size(), 2u);
}

using Captured = std::map<size_t, std::vector<int64_t>>;

Captured capture(const fake::FakeTarget& target, Proposer* proposer,
                 const std::vector<Request>& requests, std::vector<int64_t> taps) {
  Captured ids;
  EngineOptions options = {.max_batch = 2, .prefill_rows = 4, .capture_taps = taps};
  options.on_taps = [&](size_t request, int64_t first_position, const at::Tensor& taps_RF) {
    EXPECT_EQ(first_position, static_cast<int64_t>(ids[request].size()));
    EXPECT_EQ(taps_RF.size(1), static_cast<int64_t>(taps.size()) * 16);
    for (int64_t r = 0; r < taps_RF.size(0); ++r) {
      for (size_t t = 0; t < taps.size(); ++t) {
        const auto tap = taps_RF[r].narrow(0, static_cast<int64_t>(t) * 16, 16);
        EXPECT_EQ(tap[fake::kTapLayer].item<float>(), static_cast<float>(taps[t]));
        EXPECT_EQ(tap[fake::kTapPosition].item<float>(), static_cast<float>(first_position + r));
      }
      ids[request].push_back(static_cast<int64_t>(taps_RF[r][fake::kTapId].item<float>()));
    }
  };
  generate(target, proposer, requests, options);
  return ids;
}

TEST(Engine, CapturesTapsOfEveryCommittedRow) {
  const fake::FakeTarget target({});
  const std::vector<Request> requests = {{.prompt = {1, 2, 3, 4, 5, 6}, .max_new_tokens = 9},
                                         {.prompt = {4}, .max_new_tokens = 12},
                                         {.prompt = {2, 2}, .max_new_tokens = 1}};
  const auto plain = generate(target, nullptr, requests);
  Captured expected;  // every id but the last, which has no row
  fake::Oracle oracle;
  for (size_t i = 0; i < requests.size(); ++i) {
    oracle.add(requests[i].prompt, plain.results[i].tokens);
    expected[i] = requests[i].prompt;
    const auto& tokens = plain.results[i].tokens;
    expected[i].insert(expected[i].end(), tokens.begin(), tokens.end() - 1);
  }
  EXPECT_EQ(capture(target, nullptr, requests, {2, 3, 4}), expected);
  for (fake::TestProposer& proposer : fake::all_characters(oracle, 31, 0, 30)) {
    EXPECT_EQ(capture(target, &proposer, requests, {2, 3, 4}), expected) << proposer.name();
    EXPECT_EQ(capture(target, &proposer, requests, {1, 5}), expected) << proposer.name();
  }
}

}  // namespace
}  // namespace dflash::decode
