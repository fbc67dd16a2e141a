// The engine while requests come and go: R-SV-3, R-SV-4, R-SV-5 and faults SV-01, SV-02, SV-05,
// SV-10.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "decode/engine.h"
#include "decode/proposers.h"
#include "decode/test_proposers.h"
#include "target/random.h"

namespace dflash::decode {
namespace {

using Ids = std::vector<int64_t>;

Ids random_prompt(int64_t length, uint64_t key, int64_t vocab) {
  Ids ids;
  for (int64_t i = 0; i < length; ++i) {
    ids.push_back(static_cast<int64_t>(uniform_below(vocab, {3, key, static_cast<uint64_t>(i)})));
  }
  return ids;
}

Ids alone(const target::Target& target, const Request& request) {
  return generate(target, nullptr, {request}).results[0].tokens;
}

void finish(Engine& engine) {
  while (engine.step()) {
  }
}

/// Half right, half wrong, and never the same twice.
fake::TestProposer mixed_drafts(const fake::Oracle& oracle) {
  return {"mixed", 3, [&oracle](const Proposer::Sequence& sequence, int64_t call) {
            Ids ids = oracle.next(sequence.ids, sequence.room);
            for (size_t i = static_cast<size_t>(call % 4); i < ids.size(); ++i) ids[i] ^= 1;
            return ids;
          }};
}

// R-SV-3: whoever was there before or is there too, an answer is the one of a fresh process.
TEST(Session, AnswersDoNotDependOnCompanyOrHistory) {
  const fake::FakeTarget target({.vocab = 64});
  const auto request = [](uint64_t key, int64_t budget) {
    return Request{.prompt = random_prompt(5 + static_cast<int64_t>(key), key, 64),
                   .sampling = {.temperature = key % 2 == 0 ? 0.0 : 0.8, .seed = key},
                   .max_new_tokens = budget};
  };
  std::vector<Request> requests = {request(0, 300), request(1, 5), request(0, 300)};
  for (uint64_t key = 2; key < 10; ++key) requests.push_back(request(key, 40));
  requests.push_back(request(0, 300));
  fake::Oracle oracle;
  std::vector<Ids> expected;
  for (const Request& one : requests) {
    expected.push_back(alone(target, one));
    oracle.add(one.prompt, expected.back());
  }
  for (const bool reuse : {false, true}) {
    fake::TestProposer proposer = mixed_drafts(oracle);
    size_t finished = 0;
    Engine engine(target, &proposer,
                  {.max_batch = 8,
                   .on_finish = [&](size_t, const Result&) { ++finished; },
                   .reuse_prefixes = reuse});
    std::vector<Result> results(requests.size());
    for (size_t i = 0; i < 3; ++i) {  // A, B, A one after the other
      EXPECT_EQ(engine.submit(requests[i], results[i]), i);
      finish(engine);
    }
    for (size_t i = 3; i < requests.size(); ++i) {  // eight at once, each joining a pass later
      engine.submit(requests[i], results[i]);
      engine.step();
    }
    finish(engine);
    EXPECT_EQ(finished, requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(results[i].tokens, expected[i]) << "request " << i << ", reuse " << reuse;
    }
    EXPECT_EQ(results[2].reused_rows, reuse ? 4 : 0);
  }
}

// R-SV-4
TEST(Session, ACancelledRequestLeavesTheOthersAlone) {
  const fake::FakeTarget target({.vocab = 64});
  std::vector<Request> requests;
  fake::Oracle oracle;
  std::vector<Ids> expected;
  for (uint64_t key = 0; key < 3; ++key) {
    requests.push_back({.prompt = random_prompt(6, key, 64), .max_new_tokens = 40});
    expected.push_back(alone(target, requests.back()));
    oracle.add(requests.back().prompt, expected.back());
  }
  fake::TestProposer proposer = mixed_drafts(oracle);
  std::vector<size_t> committed, finished;
  Engine engine(target, &proposer,
                {.max_batch = 2,
                 .on_commit = [&](const Commit& commit) { committed.push_back(commit.request); },
                 .on_finish = [&](size_t request, const Result&) { finished.push_back(request); },
                 .reuse_prefixes = true});
  std::vector<Result> results(3);
  for (size_t i = 0; i < 3; ++i) engine.submit(requests[i], results[i]);
  for (int pass = 0; pass < 4; ++pass) engine.step();
  EXPECT_EQ(std::count(committed.begin(), committed.end(), 2u), 0);  // no slot yet
  engine.cancel(0);
  committed.clear();
  engine.step();
  EXPECT_EQ(committed, (std::vector<size_t>{2, 1}));  // the third has the slot in the next pass
  finish(engine);
  engine.cancel(1);  // long over: nothing happens
  EXPECT_EQ(finished.size(), 2u);
  EXPECT_EQ(std::count(finished.begin(), finished.end(), 0u), 0);
  EXPECT_EQ(results[1].tokens, expected[1]);
  EXPECT_EQ(results[2].tokens, expected[2]);
  Result again;  // what the cancelled one had forwarded serves, and no row more (SV-10)
  engine.submit(requests[0], again);
  finish(engine);
  EXPECT_EQ(again.tokens, expected[0]);
}

TEST(Session, AWaitingRequestCanBeCancelled) {
  const fake::FakeTarget target({.vocab = 64});
  Engine engine(target, nullptr);
  const Request request{.prompt = {1, 2}, .max_new_tokens = 3};
  Result first, second;
  engine.submit(request, first);
  const size_t waiting = engine.submit(request, second);
  engine.cancel(waiting);
  finish(engine);
  EXPECT_EQ(first.tokens.size(), 3u);
  EXPECT_TRUE(second.tokens.empty());
  EXPECT_FALSE(engine.step());
}

TEST(Session, AnImpossibleRequestIsRefusedAtOnce) {
  const fake::FakeTarget target({.vocab = 64});
  Engine engine(target, nullptr);
  Result result;
  EXPECT_THROW(engine.submit({.prompt = {64}}, result), Error);
  EXPECT_THROW(engine.submit({.prompt = {1}, .num_top_log_probs = 65}, result), Error);
  EXPECT_FALSE(engine.step());
}

// R-SV-5 on a scripted target: six of eight prompt tokens are shared.
TEST(Session, ASharedPrefixIsTakenOver) {
  const fake::FakeTarget target({.vocab = 64});
  const Request first{.prompt = {1, 2, 3, 4, 5, 6, 7, 8}, .max_new_tokens = 20};
  const Request second{.prompt = {1, 2, 3, 4, 5, 6, 9, 8}, .max_new_tokens = 20};
  fake::Oracle oracle;
  for (const Request* one : {&first, &second}) oracle.add(one->prompt, alone(target, *one));
  fake::TestProposer proposer = mixed_drafts(oracle);
  proposer.calls = 0;
  const Result cold = generate(target, &proposer, {second}).results[0];
  Engine engine(target, &proposer, {.reuse_prefixes = true});
  Result result, warm;
  engine.submit(first, result);
  finish(engine);
  proposer.calls = 0;  // the same drafts as in the cold run
  engine.submit(second, warm);
  finish(engine);
  EXPECT_EQ(warm.reused_rows, 6);
  EXPECT_EQ(cold.reused_rows, 0);
  EXPECT_EQ(warm.tokens, cold.tokens);
  EXPECT_EQ(warm.counts.to_json(), cold.counts.to_json());
}

// The same prompt again: all rows but the last, from which the first token is chosen.
TEST(Session, ThePromptsLastRowIsAlwaysRun) {
  const fake::FakeTarget target({.vocab = 64});
  Engine engine(target, nullptr, {.reuse_prefixes = true});
  const Request request{.prompt = {1, 2, 3, 4}, .max_new_tokens = 5};
  Result first, second;
  engine.submit(request, first);
  finish(engine);
  engine.submit(request, second);
  finish(engine);
  EXPECT_EQ(second.reused_rows, 3);
  EXPECT_EQ(second.tokens, first.tokens);
}

// Of several free slots the one with the longest common beginning; strangers overwrite the rest.
TEST(Session, EachConversationFindsItsSlot) {
  const fake::FakeTarget target({.vocab = 64});
  Engine engine(target, nullptr, {.max_batch = 2, .reuse_prefixes = true});
  const Request a{.prompt = {1, 2, 3, 4, 5, 6}, .max_new_tokens = 4};
  const Request b{.prompt = {9, 8, 7, 6}, .max_new_tokens = 4};
  Result results[4];
  engine.submit(a, results[0]);
  engine.submit(b, results[1]);
  finish(engine);
  const auto next_turn = [](const Request& request, const Result& result) {
    Request next = request;
    next.prompt.insert(next.prompt.end(), result.tokens.begin(), result.tokens.end());
    next.prompt.push_back(11);
    return next;
  };
  const Request a2 = next_turn(a, results[0]), b2 = next_turn(b, results[1]);
  engine.submit(b2, results[2]);
  engine.submit(a2, results[3]);
  finish(engine);
  EXPECT_EQ(results[2].reused_rows, 4 + 3);  // the answer's last token was never run
  EXPECT_EQ(results[3].reused_rows, 6 + 3);
  EXPECT_EQ(results[2].tokens, alone(target, b2));
  EXPECT_EQ(results[3].tokens, alone(target, a2));
}

struct Family {
  const char* name;
  target::TransformerConfig (*config)();
  bool recurrent;
};

class SessionFamilies : public ::testing::TestWithParam<Family> {};

// Rows of another sequence's passes are the same bits as rows of one's own (R-SV-5, both kinds).
TEST_P(SessionFamilies, TheNextTurnEqualsAColdRun) {
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    const auto target = target::make_random_target(GetParam().config(), 11, compute);
    const int64_t vocab = target->config().vocab_size;
    const auto lookup = make_lookup_proposer();
    Engine engine(*target, lookup.get(), {.prefill_rows = 7, .reuse_prefixes = true});
    Request turn{.prompt = random_prompt(20, 1, vocab), .max_new_tokens = 25};
    Result first;
    engine.submit(turn, first);
    finish(engine);
    const int64_t kept = static_cast<int64_t>(turn.prompt.size() + first.tokens.size()) - 1;
    turn.prompt.insert(turn.prompt.end(), first.tokens.begin(), first.tokens.end());
    turn.prompt.push_back(5);
    Result second;
    engine.submit(turn, second);
    finish(engine);
    EXPECT_EQ(second.reused_rows, kept);
    EXPECT_EQ(second.tokens, alone(*target, turn));

    turn.prompt.resize(30);  // back inside the last turn: recurrent states have no such row
    Result third;
    engine.submit(turn, third);
    finish(engine);
    EXPECT_EQ(third.reused_rows, GetParam().recurrent ? 0 : 29);
    EXPECT_EQ(third.tokens, alone(*target, turn));
  }
}

INSTANTIATE_TEST_SUITE_P(All, SessionFamilies,
                         ::testing::Values(Family{"Qwen3", target::tiny_qwen3_config, false},
                                           Family{"Qwen35", target::tiny_qwen35_config, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace dflash::decode
