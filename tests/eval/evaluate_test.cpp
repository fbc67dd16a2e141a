// R-EV-1, R-EV-2, R-EV-4, R-EV-6, R-EV-7 and the whole report, on a target made by hand.
#include "eval/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/templates.h"
#include "data/word_tokenizer.h"
#include "decode/fake_target.h"
#include "decode/test_proposers.h"
#include "eval/repeat.h"

namespace dflash::eval {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Speed, DecodeRateLeavesTheFirstTokenOut) {  // R-EV-4
  const Speed speed = {
      .prefill_seconds = 0.5, .decode_seconds = 2.0, .tokens = 100, .decode_tokens = 99};
  EXPECT_DOUBLE_EQ(speed.decode_rate(), 49.5);
  EXPECT_DOUBLE_EQ(speed.overall_rate(), 40.0);
  EXPECT_EQ(Speed{}.decode_rate(), 0.0);
}

/// Two likely ids after every history: 3 by `margin` before 5.
fake::FakeTarget margin_target(double margin) {
  return fake::FakeTarget({.vocab = 8}, [margin](auto, std::span<float> row) {
    std::fill(row.begin(), row.end(), 0.0f);
    row[3] = 10.0f;
    row[5] = static_cast<float>(10.0 - margin);
  });
}

TEST(Compare, TieAndFailure) {  // R-EV-6
  const std::vector<int64_t> prompt = {1, 2}, plain = {3, 3, 3}, drafted = {3, 3, 5};
  const auto tie = first_difference(margin_target(0.0), prompt, plain, drafted, /*greedy=*/true);
  ASSERT_TRUE(tie.has_value());
  EXPECT_TRUE(tie->tie);
  EXPECT_EQ(tie->index, 2);
  EXPECT_EQ(tie->plain_token, 3);
  EXPECT_EQ(tie->drafted_token, 5);
  const auto failure =
      first_difference(margin_target(0.6), prompt, plain, drafted, /*greedy=*/true);
  EXPECT_FALSE(failure->tie);
  EXPECT_NEAR(failure->margin, 0.6, 1e-6);
  EXPECT_FALSE(first_difference(margin_target(0.0), prompt, plain, drafted, /*greedy=*/false)->tie);
  EXPECT_FALSE(first_difference(margin_target(0), prompt, plain, plain, true).has_value());
}

TEST(Compare, AShorterTextIsADifference) {
  const std::vector<int64_t> prompt = {1}, plain = {3, 3}, drafted = {3};
  const auto difference = first_difference(margin_target(0.0), prompt, plain, drafted, true);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->index, 1);
  EXPECT_EQ(difference->drafted_token, -1);
  EXPECT_FALSE(difference->tie);
}

TEST(Repeat, OneOrTwoTokensOverAndOver) {
  EXPECT_TRUE(repeats(std::vector<int64_t>{7, 7, 7, 7}));
  EXPECT_TRUE(repeats(std::vector<int64_t>{7, 8, 7, 8, 7}));
  EXPECT_FALSE(repeats(std::vector<int64_t>{7, 7, 7}));
  EXPECT_FALSE(repeats(std::vector<int64_t>{7, 8, 9, 7, 8, 9}));
  WindowCount windows;
  windows.add(std::vector<int64_t>{1, 2, 3, 3, 3, 3}, 4);
  EXPECT_EQ(windows.windows, 3);
  EXPECT_EQ(windows.repeating, 1);
}

std::vector<EncodedTask> tasks_of(int64_t count) {
  std::vector<EncodedTask> tasks;
  for (int64_t i = 0; i < count; ++i) {
    tasks.push_back({fmt::format("task {}", i), std::vector<int64_t>(2 + 3 * i, 1 + i)});
  }
  return tasks;
}

/// Knows the plain answers; proposes the first `right` of seven correctly.
class Arms {
 public:
  Arms(const fake::FakeTarget& target, const std::vector<EncodedTask>& tasks, int64_t budget) {
    for (const EncodedTask& task : tasks) {
      const auto run =
          decode::generate(target, nullptr, {{.prompt = task.prompt, .max_new_tokens = budget}});
      oracle_.add(task.prompt, run.results[0].tokens);
    }
  }
  fake::TestProposer right(size_t right) {
    return {"drafter", 7, [this, right](const decode::Proposer::Sequence& s, int64_t) {
              std::vector<int64_t> ids = oracle_.next(s.ids, s.room);
              for (size_t i = right; i < ids.size(); ++i) ids[i] = ids[i] == 0 ? 1 : 0;
              return ids;
            }};
  }

 private:
  fake::Oracle oracle_;
};

TEST(Evaluate, SeveralDraftersSideBySide) {
  const fake::FakeTarget target({});
  const std::vector<EncodedTask> tasks = tasks_of(4);
  Arms arms(target, tasks, 33);
  fake::TestProposer good = arms.right(7), half = arms.right(3);
  for (int64_t batch : {1, 4}) {
    const EvalOptions options = {.max_new_tokens = 33, .batch = batch, .context_edges = {0, 16}};
    const Report report =
        evaluate_ids(target, {{"good", &good}, {"half", &half}}, "toy", tasks, {}, options);
    ASSERT_EQ(report.arms.size(), 3u);  // lookup too
    EXPECT_EQ(report.arms[2].name, "prompt lookup");
    EXPECT_EQ(report.num_tasks, 4);
    EXPECT_DOUBLE_EQ(report.arms[0].counts.tau(), 8.0);
    EXPECT_DOUBLE_EQ(report.arms[0].mean_of_means, 8.0);
    EXPECT_DOUBLE_EQ(report.arms[1].counts.tau(), 4.0);
    EXPECT_THAT(report.arms[1].counts.slot_acceptance()[2], 1.0);
    EXPECT_DOUBLE_EQ(report.plain.counts.tau(), 1.0);
    EXPECT_TRUE(report.lossless());
    EXPECT_EQ(report.arms[0].speed.tokens, 4 * 33);
    EXPECT_EQ(report.arms[0].speed.decode_tokens, 4 * 32);
    EXPECT_EQ(report.timed, batch == 1);
    EXPECT_EQ(report.speedup(report.arms[0]) > 0, batch == 1);

    AcceptanceCounts by_context;  // the bins hold every pass once
    for (const ContextBin& bin : report.arms[0].by_context) by_context.merge(bin.counts);
    EXPECT_EQ(report.arms[0].by_context.size(), 2u);
    EXPECT_EQ(by_context.passes(), report.arms[0].counts.passes());
    EXPECT_EQ(by_context.committed(), report.arms[0].counts.committed());

    const Json json = report.to_json();
    EXPECT_EQ(json["arms"][1]["acceptance"]["tau"], 4.0);
    EXPECT_EQ(json["lossless"], true);
    EXPECT_EQ(json["arms"][0].contains("speedup"), batch == 1);
    const Json& speed = json["arms"][0]["speed"];  // a batch has no seconds of the prompts alone
    EXPECT_EQ(speed.contains("decode_seconds"), batch == 1);
    EXPECT_GT(speed["seconds"].get<double>(), 0);
    EXPECT_THAT(report.to_table(), HasSubstr("half"));
  }
}

TEST(Evaluate, PooledTauAndMeanOfMeansDiffer) {  // R-EV-1: committed over passes
  // Task 0: 8 tokens a pass in 2 passes; task 1: 1 token a pass in 4.
  const fake::FakeTarget target({.vocab = 16}, fake::scripted([](auto history) {
                                  return static_cast<int64_t>(history.size() % 16);
                                }));
  fake::TestProposer proposer("uneven", 7, [](const decode::Proposer::Sequence& s, int64_t) {
    std::vector<int64_t> ids;
    const int64_t length = static_cast<int64_t>(s.ids.size());
    for (int64_t k = 0; k < 7; ++k) ids.push_back((length + k + (s.ids[0] == 1 ? 0 : 1)) % 16);
    return ids;
  });
  const EvalOptions options = {.max_new_tokens = 17, .with_lookup = false};
  const Report report = evaluate_ids(target, {{"uneven", &proposer}}, "toy",
                                     {{"a", {1, 1}}, {"b", {2, 2}}}, {}, options);
  EXPECT_EQ(report.arms[0].counts.passes(), 2 + 16);
  EXPECT_DOUBLE_EQ(report.arms[0].counts.tau(), 32.0 / 18.0);
  EXPECT_DOUBLE_EQ(report.arms[0].mean_of_means, 4.5);
}

TEST(Evaluate, LoopingTextsAreCountedAside) {
  // After prompts that begin with 1 the text is 7 for ever; after others it counts.
  const fake::FakeTarget target(
      {.vocab = 97}, fake::scripted([](auto history) {
        return history[0] == 1 ? int64_t{7} : static_cast<int64_t>(history.size() * 31 % 97);
      }));
  fake::TestProposer sevens("sevens", 7, [](const decode::Proposer::Sequence& s, int64_t) {
    return std::vector<int64_t>(s.room, 7);
  });
  const EvalOptions options = {.max_new_tokens = 65, .with_lookup = false};
  const Report report = evaluate_ids(target, {{"sevens", &sevens}}, "toy",
                                     {{"loop", {1, 1}}, {"count", {2, 2}}}, {}, options);
  EXPECT_EQ(report.num_looping, 1);
  EXPECT_GT(report.arms[0].counts.tau(), 1.5);
  EXPECT_LT(report.arms[0].without_loops.tau(), 1.1);
  EXPECT_DOUBLE_EQ(report.arms[0].repeating_drafts, 1.0);
  EXPECT_THAT(report.repeating_text, DoubleNear(0.5, 0.01));
}

TEST(Evaluate, ADrafterThatNeverHelpsIsAnError) {  // R-EV-7
  const fake::FakeTarget target({});
  fake::TestProposer silent("silent", 7,
                            [](const auto&, int64_t) { return std::vector<int64_t>{}; });
  EvalOptions options = {.max_new_tokens = 12, .with_lookup = false};
  EXPECT_THROW(evaluate_ids(target, {{"silent", &silent}}, "toy", tasks_of(2), {}, options), Error);
  options.require_acceptance = false;
  const Report report =
      evaluate_ids(target, {{"silent", &silent}}, "toy", tasks_of(2), {}, options);
  EXPECT_DOUBLE_EQ(report.arms[0].counts.tau(), 1.0);
  ASSERT_EQ(report.ineffective().size(), 1u);  // the report is whole all the same
  EXPECT_THAT(report.ineffective()[0], HasSubstr("no token was proposed"));
  EXPECT_EQ(report.arms[0].num_compared, 2);
}

TEST(Evaluate, LongPromptsAreLeftOutAndSaid) {
  const fake::FakeTarget target({.max_positions = 10});
  const Report report = evaluate_ids(target, {}, "toy", tasks_of(5), {}, {.max_new_tokens = 4});
  EXPECT_EQ(report.num_tasks, 3);
  EXPECT_EQ(report.num_too_long, 2);
  EXPECT_THROW(evaluate_ids(target, {}, "toy", {{"x", std::vector<int64_t>(11, 1)}}, {}, {}),
               Error);
}

// A template that shows no tools would ask another question: the task is left out by name.
TEST(Evaluate, TasksThatTheTemplateHidesAreLeftOutAndSaid) {
  const OrderedJson tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const Task plain{"plain", {{{"user", "u"}}}}, with_tools{"tools", {{{"user", "u"}}, tools}};
  const EvalOptions options = {.max_new_tokens = 4};
  const fake::FakeTarget target({.vocab = 96});
  const auto run = [&](const WordTokenizer& tokenizer, const std::vector<Task>& tasks) {
    const auto chat = text::ChatTemplate::for_tokenizer(tokenizer);
    return evaluate(target, tokenizer, chat, {}, {"toy", tasks}, options);
  };
  const WordTokenizer chatml, agent(agent_template());
  const Report report = run(chatml, {plain, with_tools});
  const std::string reason = "has tools, which the chat template does not render";
  EXPECT_EQ(report.num_tasks, 1);
  EXPECT_EQ(report.refused.at(reason), 1);
  EXPECT_EQ(report.to_json()["refused"][reason], 1);
  EXPECT_THAT(report.to_table(), HasSubstr("left out: " + reason));
  EXPECT_EQ(report.prompt_hash, run(chatml, {plain}).prompt_hash);
  EXPECT_THROW(run(chatml, {with_tools}), Error);
  const Report both = run(agent, {plain, with_tools});
  EXPECT_EQ(both.num_tasks, 2);
  EXPECT_TRUE(both.refused.empty());
  EXPECT_NE(both.prompt_hash, run(agent, {plain, plain}).prompt_hash) << "asked without its tools";
}

TEST(Evaluate, StopsWhenAskedAndSaysSo) {
  const fake::FakeTarget target({});
  int64_t finished = 0;
  EvalOptions options = {.max_new_tokens = 6};
  options.on_task = [&](int64_t done, int64_t total) {
    finished = done;
    EXPECT_EQ(total, 8);
  };
  options.should_stop = [&] { return finished >= 3; };
  const Report report = evaluate_ids(target, {}, "toy", tasks_of(4), {}, options);
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.num_tasks, 2);
}

TEST(Evaluate, StoppedBeforeTheFirstAnswerComparesNothing) {
  const fake::FakeTarget target({});
  EvalOptions options = {.max_new_tokens = 6};
  options.should_stop = [] { return true; };
  const Report report = evaluate_ids(target, {}, "toy", tasks_of(2), {}, options);
  EXPECT_THAT(report.to_table(), HasSubstr("0 tasks"));
  EXPECT_THAT(report.to_table(), ::testing::Not(HasSubstr("yes")));
  EXPECT_THAT(report.to_table(), ::testing::Not(HasSubstr("0.000")));
}

}  // namespace
}  // namespace dflash::eval
