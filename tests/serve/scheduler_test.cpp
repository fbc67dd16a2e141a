// R-SV-3, R-SV-4, R-SV-5, R-SV-7 and SV-05, SV-06, SV-08 without HTTP. `should_close` is polled
// before every pass on the engine's thread, so a test acts there and nothing depends on time.
#include "serve/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ranges>

#include "base/log.h"
#include "base/rng.h"
#include "decode/forwarding_proposer.h"
#include "decode/proposers.h"
#include "decode/test_proposers.h"
#include "decode/tiny_drafter.h"
#include "serve/reply.h"
#include "serve/world.h"
#include "target/random.h"

namespace dflash::serve {
namespace {

using ::testing::ElementsAre;

constexpr std::chrono::milliseconds kNow(0);

std::vector<int64_t> ids_of(const std::string& text) {
  return LetterTokenizer().encode(text, text::Specials::kParse);
}

std::vector<int64_t> random_ids(int64_t count, uint64_t key) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(4 + static_cast<int64_t>(uniform_below(80, {key, static_cast<uint64_t>(i)})));
  }
  return ids;
}

Query query_of(std::vector<int64_t> prompt, int64_t max_new_tokens,
               decode::Sampling sampling = {}) {
  return {.endpoint = Endpoint::kCompletion,
          .request = {.prompt = std::move(prompt),
                      .sampling = sampling,
                      .max_new_tokens = max_new_tokens,
                      .stop_ids = {kEnd}}};
}

/// All of it, once the scheduler is through.
Update all_of(Generation& generation) {
  const auto update = generation.wait(kNow);
  EXPECT_TRUE(update.has_value());
  return update.value_or(Update{});
}

std::string answer_of(Generation& generation) {
  return text_of(all_of(generation));
}

/// The text that plain decoding in a fresh process has.
std::string plain_text(const target::Target& target, const Query& query) {
  const auto run = decode::generate(target, nullptr, {query.request});
  return LetterTokenizer().decode(run.results[0].tokens, /*skip_special=*/true);
}

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() { set_log_level(3); }  // failures are meant

  /// Runs until all have their answers.
  static void drain(Scheduler& scheduler) {
    scheduler.run([] { return true; });
  }

  LetterTokenizer tokenizer_;
  fake::FakeTarget target_{{.vocab = kLetters, .memory = 3}};
  std::unique_ptr<decode::Proposer> lookup_ = decode::make_lookup_proposer();
};

TEST_F(SchedulerTest, OneSessionAnswersAsFreshProcessesDo) {  // R-SV-3
  Scheduler scheduler(target_, lookup_.get(), tokenizer_, {});
  std::vector<Query> queries = {query_of(random_ids(9, 1), 300), query_of(random_ids(4, 2), 5),
                                query_of(random_ids(9, 1), 300)};
  for (uint64_t i = 0; i < 8; ++i) {
    queries.push_back(
        query_of(random_ids(5 + i, 3), 30 + i, {.temperature = i % 2 == 0 ? 0.0 : 0.9, .seed = i}));
  }
  queries.push_back(query_of(random_ids(6, 3), 40));
  std::vector<std::shared_ptr<Generation>> answers;
  const auto idle = [&] {
    const SchedulerStatus status = scheduler.status();
    return status.running + status.waiting == 0;
  };
  // A, B, A one after the other, then 8 at once, then one alone.
  scheduler.run([&] {
    if (!idle()) return false;
    const size_t next = answers.size();
    if (next == queries.size()) return true;
    for (size_t i = next; i < (next == 3 ? 11 : next + 1); ++i) {
      answers.push_back(scheduler.submit(queries[i]));
    }
    return false;
  });
  ASSERT_EQ(answers.size(), queries.size());
  for (size_t i = 0; i < queries.size(); ++i) {
    EXPECT_EQ(answer_of(*answers[i]), plain_text(target_, queries[i])) << "request " << i;
  }
  EXPECT_EQ(scheduler.status().finished, static_cast<int64_t>(queries.size()));
  EXPECT_GT(scheduler.status().counts.tau(), 1.0);  // texts loop, so lookup drafts them
}

// R-SV-4, SV-05: within one block, and nobody else notices.
TEST_F(SchedulerTest, AClientThatLeavesFreesItsSlotAtOnce) {
  std::shared_ptr<Generation> leaver, other, next;
  Scheduler* scheduler = nullptr;
  int64_t passes_of_leaver = 0;
  const std::vector<int64_t> leaver_prompt = random_ids(7, 11);
  // The client leaves in the middle of the pass that follows its tenth token.
  fake::FakeTarget watched({.vocab = kLetters}, fake::scripted([&](auto history) -> int64_t {
                             const bool is_leavers =
                                 history.size() >= 7 &&
                                 std::equal(leaver_prompt.begin(), leaver_prompt.end(),
                                            history.begin());
                             if (is_leavers && history.size() > 17) {
                               if (passes_of_leaver++ == 0) scheduler->cancel(leaver);
                             }
                             return 4 + history.back() * 7 % 80;
                           }));
  watched.record = true;
  Scheduler two(watched, nullptr, tokenizer_, {.num_slots = 2});
  scheduler = &two;
  const Query other_query = query_of(random_ids(5, 12), 60);
  const Query next_query = query_of(random_ids(8, 13), 20);
  leaver = two.submit(query_of(leaver_prompt, 100000));  // would never end
  other = two.submit(other_query);
  next = two.submit(next_query);  // waits for a slot
  drain(two);
  EXPECT_EQ(passes_of_leaver, 1);
  EXPECT_EQ(all_of(*leaver).ending, Ending::kCancelled);
  const SchedulerStatus status = two.status();
  EXPECT_EQ(status.cancelled, 1);
  EXPECT_EQ(status.finished, 2);
  // The next request stands in the pass right after.
  size_t last = 0;
  for (size_t i = 0; i < watched.passes.size(); ++i) {
    for (const auto& segment : watched.passes[i]) {
      if (std::ranges::equal(segment.history | std::views::take(7), leaver_prompt)) last = i;
    }
  }
  ASSERT_LT(last + 1, watched.passes.size());
  EXPECT_EQ(watched.passes[last + 1].size(), 2u);
  EXPECT_EQ(answer_of(*other), plain_text(watched, other_query));
  EXPECT_EQ(answer_of(*next), plain_text(watched, next_query));
}

TEST_F(SchedulerTest, CancellingWhileWaitingAndAfterTheEnd) {
  Scheduler scheduler(target_, nullptr, tokenizer_, {.num_slots = 1});
  const Query query = query_of(random_ids(4, 1), 9);
  const auto first = scheduler.submit(query), second = scheduler.submit(query),
             third = scheduler.submit(query);
  scheduler.cancel(second);
  drain(scheduler);
  scheduler.cancel(first);
  drain(scheduler);
  EXPECT_EQ(answer_of(*first), plain_text(target_, query));
  EXPECT_EQ(all_of(*second).ending, Ending::kCancelled);
  EXPECT_EQ(answer_of(*third), plain_text(target_, query));
  EXPECT_EQ(scheduler.status().cancelled, 1);
}

TEST_F(SchedulerTest, RefusesWhatNobodyCouldAnswer) {
  Scheduler scheduler(target_, nullptr, tokenizer_, {.num_slots = 2, .max_waiting = 1});
  const auto status_of = [&] {
    try {
      scheduler.submit(query_of({5}, 3));
    } catch (const ApiError& error) {
      return error.status();
    }
    return 200;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(status_of(), 200) << i;
  EXPECT_EQ(status_of(), 429);
  EXPECT_EQ(scheduler.status().running, 2);
  EXPECT_EQ(scheduler.status().waiting, 1);
  scheduler.close();
  EXPECT_EQ(status_of(), 503);  // R-SV-8
  drain(scheduler);
  EXPECT_EQ(scheduler.status().finished, 3);  // what was taken is answered
}

TEST_F(SchedulerTest, UsageCountsTheEndToken) {  // R-SV-7
  const fake::FakeTarget target({.vocab = kLetters}, spoken([](std::string_view text) {
                                  return text.ends_with('q') ? 'a' : char{0};
                                }));
  fake::TestProposer proposer("right", 3, [](const auto&, int64_t) {
    return std::vector<int64_t>{kEnd, kEnd, kEnd};
  });
  Scheduler scheduler(target, &proposer, tokenizer_, {});
  const auto generation = scheduler.submit(query_of(ids_of("q"), 50));
  drain(scheduler);
  const Update all = all_of(*generation);
  EXPECT_EQ(text_of(all), "a");
  EXPECT_EQ(all.num_tokens, 2);
  EXPECT_EQ(all.ending, Ending::kStop);
  EXPECT_EQ(all.counts.passes(), 1);
  EXPECT_EQ(all.counts.committed(), 1);
}

TEST_F(SchedulerTest, StopTextsCutPassesAsEndTokensDo) {
  const std::string text = "abcdefghijklmnop";
  const fake::FakeTarget target({.vocab = kLetters}, answers({{"q", text}}));
  const std::vector<int64_t> prompt = ids_of("user\nq<|im_end|>assistant\n");
  fake::Oracle oracle;
  oracle.add(prompt, ids_of(text));
  fake::TestProposer proposer("right", 3, [&](const decode::Proposer::Sequence& sequence, int64_t) {
    return oracle.next(sequence.ids, sequence.room);
  });
  Scheduler scheduler(target, &proposer, tokenizer_, {});
  Query query = query_of(prompt, 50);
  query.stops = {"gh"};
  const auto generation = scheduler.submit(query);
  drain(scheduler);
  const Update all = all_of(*generation);
  EXPECT_EQ(text_of(all), "abcdef");
  EXPECT_EQ(all.ending, Ending::kStop);
  EXPECT_EQ(all.num_tokens, 8);  // a, bcde, fgh of fghi
  EXPECT_EQ(all.counts.passes(), 2);
  EXPECT_EQ(all.counts.committed(), 7);
  EXPECT_EQ(all.counts.accepted(), 6);
}

TEST_F(SchedulerTest, CountsEqualTheEngines) {
  const Query query = query_of(random_ids(9, 5), 200);
  Scheduler scheduler(target_, lookup_.get(), tokenizer_, {.prefill_rows = 4});
  const auto generation = scheduler.submit(query);
  drain(scheduler);
  const auto lookup = decode::make_lookup_proposer();
  const auto run = decode::generate(target_, lookup.get(), {query.request});
  const Update all = all_of(*generation);
  EXPECT_EQ(all.counts.to_json(), run.results[0].counts.to_json());
  EXPECT_EQ(all.num_tokens, static_cast<int64_t>(run.results[0].tokens.size()));
  EXPECT_GT(all.counts.tau(), 1.0);
}

/// Writes down what another proposes.
class Recorder final : public decode::ForwardingProposer {
 public:
  using ForwardingProposer::ForwardingProposer;
  std::vector<decode::Proposal> propose(std::span<const Sequence> sequences) override {
    auto lists = ForwardingProposer::propose(sequences);
    for (const auto& list : lists) proposed.push_back(list.ids);
    return lists;
  }

  std::vector<std::vector<int64_t>> proposed;
};

TEST_F(SchedulerTest, AReusedPrefixChangesNothing) {  // R-SV-5, SV-01, SV-02
  const auto target = target::make_random_llama(target::tiny_llama_config(), 3);
  const auto proposer =
      decode::make_draft_proposer(decode::drafter_of(decode::tiny_spec(*target)), *target);
  const std::vector<int64_t> shared = random_ids(6, 21);
  const auto with_tail = [&](std::vector<int64_t> tail) {
    std::vector<int64_t> ids = shared;
    ids.insert(ids.end(), tail.begin(), tail.end());
    return query_of(ids, 24);
  };
  const Query first = with_tail({10, 11}), second = with_tail({20, 21});

  Recorder cold_drafts(*proposer);
  Scheduler cold(*target, &cold_drafts, tokenizer_, {.num_slots = 1});
  const auto alone = cold.submit(second);
  drain(cold);
  Recorder warm_drafts(*proposer);
  Scheduler warm(*target, &warm_drafts, tokenizer_, {.num_slots = 1});
  warm.submit(first);
  const auto after = warm.submit(second);
  drain(warm);

  const Update expected = all_of(*alone), got = all_of(*after);
  EXPECT_EQ(expected.reused_tokens, 0);
  EXPECT_EQ(got.reused_tokens, 6);
  EXPECT_EQ(text_of(got), text_of(expected));
  EXPECT_EQ(got.counts.to_json(), expected.counts.to_json());
  ASSERT_GE(warm_drafts.proposed.size(), cold_drafts.proposed.size());
  warm_drafts.proposed.erase(
      warm_drafts.proposed.begin(),
      warm_drafts.proposed.end() - static_cast<int64_t>(cold_drafts.proposed.size()));
  EXPECT_EQ(warm_drafts.proposed, cold_drafts.proposed);
}

// SV-08: one request breaks every pass that it is in.
TEST_F(SchedulerTest, AFailureEndsOnlyItsOwnRequest) {
  const std::vector<int64_t> poison = random_ids(6, 31);
  fake::FakeTarget target({.vocab = kLetters}, fake::scripted([&](auto history) -> int64_t {
                            const bool poisoned =
                                history.size() == 12 &&
                                std::equal(poison.begin(), poison.end(), history.begin());
                            if (poisoned) throw std::runtime_error("out of something");
                            return 4 + history.back() * 11 % 80;
                          }));
  Scheduler scheduler(target, lookup_.get(), tokenizer_, {.num_slots = 3});
  std::vector<Query> queries;
  std::vector<std::shared_ptr<Generation>> answers;
  for (uint64_t i = 0; i < 6; ++i) {
    queries.push_back(query_of(i == 2 ? poison : random_ids(4 + i, 32 + i), 40));
    answers.push_back(scheduler.submit(queries.back()));
  }
  drain(scheduler);
  for (size_t i = 0; i < queries.size(); ++i) {
    const Update all = all_of(*answers[i]);
    if (i == 2) {
      EXPECT_EQ(all.ending, Ending::kFailed);
      EXPECT_EQ(all.error, "out of something");
    } else {
      EXPECT_EQ(all.ending, Ending::kLength) << i;
      EXPECT_EQ(text_of(all), plain_text(target, queries[i])) << i;
      EXPECT_EQ(all.num_tokens, 40) << i;
    }
  }
  EXPECT_EQ(scheduler.status().failed, 1);
  EXPECT_EQ(scheduler.status().finished, 5);
}

TEST_F(SchedulerTest, AProposerThatFailsCostsNobodyTheAnswer) {  // SV-08
  int failures = 0;
  fake::TestProposer proposer("fails", 3, [&](const decode::Proposer::Sequence& sequence, int64_t) {
    if (sequence.ids.size() > 20 && ++failures > 0) throw std::runtime_error("no");
    return std::vector<int64_t>(sequence.room, 7);
  });
  Scheduler scheduler(target_, &proposer, tokenizer_, {.num_slots = 2});
  const std::vector<Query> queries = {
      query_of(random_ids(5, 41), 30),
      query_of(random_ids(6, 42), 30, {.temperature = 1, .seed = 4})};
  std::vector<std::shared_ptr<Generation>> answers;
  for (const Query& query : queries) answers.push_back(scheduler.submit(query));
  drain(scheduler);
  EXPECT_EQ(failures, 1);
  for (size_t i = 0; i < queries.size(); ++i) {
    EXPECT_EQ(answer_of(*answers[i]), plain_text(target_, queries[i])) << i;
  }
}

TEST_F(SchedulerTest, NobodyWaitsForEverWhenItEnds) {
  Scheduler scheduler(target_, nullptr, tokenizer_, {});
  const auto waiting = scheduler.submit(query_of(random_ids(4, 1), 9));
  scheduler.abandon();
  EXPECT_EQ(all_of(*waiting).ending, Ending::kFailed);
}

TEST_F(SchedulerTest, LogProbsFollowTheTokens) {
  Query query = query_of(random_ids(5, 51), 12);
  query.request.num_top_log_probs = 2;
  Scheduler scheduler(target_, lookup_.get(), tokenizer_, {});
  const auto generation = scheduler.submit(query);
  drain(scheduler);
  const Update all = all_of(*generation);
  const auto run = decode::generate(target_, nullptr, {query.request});
  ASSERT_EQ(all.scored.size(), 12u);
  for (size_t i = 0; i < all.scored.size(); ++i) {
    EXPECT_EQ(all.scored[i].id, run.results[0].tokens[i]);
    EXPECT_DOUBLE_EQ(all.scored[i].log_probs.log_prob, run.results[0].log_probs[i].log_prob);
    ASSERT_EQ(all.scored[i].log_probs.top.size(), 2u);
    EXPECT_EQ(all.scored[i].log_probs.top[0].first, all.scored[i].id);  // greedy
  }
}

}  // namespace
}  // namespace dflash::serve
