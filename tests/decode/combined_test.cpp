// The combined proposer: texts stay the target's own; drafts come where they pay and hardly cost
// anything where they do not (simulated passes of known cost).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "decode/fake_target.h"
#include "decode/proposers.h"
#include "decode/tiny_drafter.h"
#include "target/random.h"

namespace dflash::decode {
namespace {

std::vector<CombinedOptions> all_kinds() {
  return {{},
          {.adaptive = false},
          {.lookup = false, .adaptive = false},
          {.top = 1},
          {.top = 1, .adaptive = false, .max_rows = 3}};
}

void expect_own_texts(const target::Target& target, Proposer& proposer, double temperature) {
  const std::vector<Request> requests = requests_of(7, temperature, 8, 9);
  for (const int64_t batch : {1, 7}) {
    const Run run = generate(target, &proposer, requests, {.max_batch = batch, .prefill_rows = 10});
    for (size_t i = 0; i < requests.size(); ++i) {
      const Result plain = generate(target, nullptr, {requests[i]}).results[0];
      EXPECT_EQ(run.results[i].tokens, plain.tokens)
          << proposer.name() << ", request " << i << ", batch " << batch;
    }
  }
}

TEST(Combined, TextsAreTheTargetsOwn) {
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    const auto llama = target::make_random_llama(target::tiny_llama_config(), 3, compute);
    const auto hybrid = target::make_random_target(target::tiny_qwen35_config(), 3, compute);
    for (const target::Target* target : {llama.get(), hybrid.get()}) {
      for (const CombinedOptions& options : all_kinds()) {
        const auto proposer = make_combined_proposer(
            make_draft_proposer(drafter_of(tiny_spec(*target), compute), *target), options);
        for (const double temperature : {0.0, 1.0}) {
          expect_own_texts(*target, *proposer, temperature);
        }
      }
    }
  }
}

TEST(Combined, NgramsAloneOnTextsThatLoop) {
  for (const bool trees : {true, false}) {
    const fake::FakeTarget target({.takes_trees = trees, .memory = 2});
    Request request{.prompt = {3, 4, 5}, .max_new_tokens = 300};
    const Result plain = generate(target, nullptr, {request}).results[0];
    // Always: what rows of this target cost is an accident of the clock.
    const auto proposer = make_combined_proposer(nullptr, {.adaptive = false});
    const Result fast = generate(target, proposer.get(), {request}).results[0];
    EXPECT_EQ(fast.tokens, plain.tokens);
    EXPECT_GT(fast.counts.tau(), 3.0);
  }
}

/// A drafter that is right about `right` of its slots in a row, by the text that it is shown.
class ScriptedDrafter final : public DraftingProposer {
 public:
  ScriptedDrafter(std::vector<int64_t> text, int64_t right, double* now, double seconds)
      : text_(std::move(text)), right_(right), now_(now), seconds_(seconds) {}

  std::vector<Slots> candidates(std::span<const Sequence> sequences, int64_t) override {
    *now_ += seconds_;
    ++calls;
    std::vector<Slots> all;
    for (const Sequence& sequence : sequences) {
      Slots slots;
      for (size_t k = 0; k < 7; ++k) {
        const size_t at = std::min(sequence.ids.size() + k, text_.size() - 1);
        const bool is_right = static_cast<int64_t>(k) < right_;
        slots.push_back({{is_right ? text_[at] : 999999, 0.6}, {999998, 0.2}});
      }
      all.push_back(slots);
    }
    return all;
  }
  std::vector<Proposal> propose(std::span<const Sequence>) override { return {}; }
  int64_t max_proposals() const override { return 7; }
  std::string name() const override { return "scripted"; }

  int64_t calls = 0;

 private:
  std::vector<int64_t> text_;
  int64_t right_;
  double* now_;
  double seconds_;
};

struct Simulation {
  double seconds = 0;  // of all passes, drafting included
  int64_t passes = 0, drafts = 0, most_rows = 0;
  double plain_seconds = 0;
};

constexpr int64_t kNoDrafter = -1;  // for `right`

/// Decodes `text` behind its first 20 ids; a pass costs `cost(rows)`, a draft `draft_seconds`.
Simulation simulate(const std::vector<int64_t>& text, int64_t right, double draft_seconds,
                    const std::function<double(int64_t)>& cost, int64_t texts = 1) {
  Simulation result;
  double now = 0;
  auto drafter = std::make_unique<ScriptedDrafter>(text, right, &now, draft_seconds);
  const ScriptedDrafter* watched = right == kNoDrafter ? nullptr : drafter.get();
  const auto proposer = make_combined_proposer(right == kNoDrafter ? nullptr : std::move(drafter),
                                               {.clock = [&now] { return now; }});
  for (int64_t i = 0; i < texts; ++i) {
    proposer->reset(0, 0);
    size_t length = 20;
    while (length + 20 < text.size()) {
      const std::span<const int64_t> ids = std::span(text).first(length);
      const Proposer::Sequence sequence = {ids, 0, 15, true};
      const auto proposals = proposer->propose({&sequence, 1});
      const DraftTree tree(proposals.at(0), {.room = 15, .vocab_size = 1 << 30});
      int64_t row = 0;
      while ((row = tree.child(row, text[length++])) >= 0) {
      }
      now += cost(tree.num_rows());
      proposer->measure({tree.num_rows(), cost(tree.num_rows())});
      result.passes += 1;
      result.most_rows = std::max(result.most_rows, tree.num_rows());
    }
    result.plain_seconds += cost(1) * static_cast<double>(length - 20);
  }
  result.seconds = now;
  if (watched) result.drafts = watched->calls;
  return result;
}

/// Ids that never come again, so that n-grams know nothing.
std::vector<int64_t> fresh_text(int64_t count) {
  std::vector<int64_t> text;
  for (int64_t i = 0; i < count; ++i) text.push_back(1000 + i);
  return text;
}
double flat(int64_t rows) {
  return rows <= 16 ? 1.0 : 2.0;
}

TEST(Combined, AHopelessDrafterCostsAtMostThreePercent) {
  for (const double draft_seconds : {0.1, 0.25, 0.6}) {
    const Simulation run = simulate(fresh_text(300), 0, draft_seconds, flat, 8);
    EXPECT_LE(run.seconds, 1.03 * run.plain_seconds) << draft_seconds;
    EXPECT_GT(run.drafts, 8);  // it is tried again and again
  }
}

TEST(Combined, AHopelessDrafterLeavesTheNgramsTheirGain) {
  std::vector<int64_t> text;
  for (int64_t i = 0; i < 160; ++i) text.push_back(i % 3 == 2 ? 5000 + i : i % 3);
  const auto cost = [](int64_t rows) { return rows <= 1 ? 1.0 : rows <= 8 ? 1.15 : 1.3; };
  const Simulation alone = simulate(text, kNoDrafter, 0, cost, 12);
  const Simulation both = simulate(text, 0, 0.3, cost, 12);
  EXPECT_LT(alone.seconds, 0.8 * alone.plain_seconds);
  EXPECT_LE(both.seconds, 1.03 * alone.seconds);
}

TEST(Combined, ADrafterThatIsRightIsUsed) {
  const Simulation run = simulate(fresh_text(400), 2, 0.25, flat);
  EXPECT_GT(run.drafts, run.passes * 9 / 10);
  EXPECT_LT(run.seconds, 0.5 * run.plain_seconds);
}

/// A text that loops makes tokens cheap, but not those of the fresh text after it: what drafting
/// must beat there is plain decoding, not the loop.
TEST(Combined, LoopsDoNotTalkDraftingDownElsewhere) {
  std::vector<int64_t> text;
  for (int64_t part = 0; part < 4; ++part) {
    for (int64_t i = 0; i < 120; ++i) text.push_back(2000 + 1000 * part + i % 6);
    for (int64_t i = 0; i < 120; ++i) text.push_back(2100 + 1000 * part + i);
  }
  const auto cost = [](int64_t rows) { return rows <= 1 ? 1.0 : rows <= 8 ? 1.2 : 1.4; };
  const Simulation run = simulate(text, 1, 0.3, cost, 2);
  EXPECT_GT(run.drafts, 2 * 4 * 120 / 2 * 8 / 10);  // two tokens a pass of fresh text
}

TEST(Combined, ADrafterBetterThanNothingButDearerIsLeftOut) {
  const Simulation run = simulate(fresh_text(600), 1, 1.5, flat);  // two tokens for 2.5
  EXPECT_LT(run.drafts, run.passes / 8);
  EXPECT_LE(run.seconds, 1.05 * run.plain_seconds);
}

TEST(Combined, TextThatLoopsNeedsNoDrafter) {
  std::vector<int64_t> text;
  for (int64_t i = 0; i < 800; ++i) text.push_back(i % 9);
  const Simulation run = simulate(text, 7, 0.25, flat);
  EXPECT_LT(run.drafts, run.passes / 2);
  EXPECT_LT(run.seconds, 0.12 * run.plain_seconds);
}

TEST(Combined, RowsThatCostAreNotFilled) {
  std::vector<int64_t> text;  // after 7 comes one of many, so that followers are hardly likely
  for (int64_t i = 0; i < 600; ++i) {
    text.push_back(
        i % 2 == 0 ? 7 : static_cast<int64_t>(uniform_below(40, {static_cast<uint64_t>(i)})));
  }
  const auto dear = [](int64_t rows) { return static_cast<double>(rows); };
  const Simulation run = simulate(text, 0, 0.25, dear);
  EXPECT_LE(run.seconds, 1.1 * run.plain_seconds);
  const Simulation free = simulate(text, 0, 0.25, flat);
  EXPECT_LT(free.seconds, 0.75 * free.plain_seconds);
}

TEST(Combined, OptionsAreChecked) {
  EXPECT_THROW(make_combined_proposer(nullptr, {.lookup = false}), Error);
  EXPECT_THROW(make_combined_proposer(nullptr, {.max_rows = 1}), Error);
  EXPECT_THROW(make_combined_proposer(nullptr, {.top = 0}), Error);
}

}  // namespace
}  // namespace dflash::decode
