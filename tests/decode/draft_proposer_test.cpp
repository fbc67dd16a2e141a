// The drafter as a proposer, on a tiny random Llama: contexts follow the commits (R-DEC-1), texts
// are the target's own in f32 and bf16 (R-DEC-8), a reduced draft vocabulary maps back.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "decode/forwarding_proposer.h"
#include "decode/proposers.h"
#include "decode/tiny_drafter.h"
#include "target/random.h"

namespace dflash::decode {
namespace {

class WithCompute : public ::testing::TestWithParam<nn::Compute> {};

TEST_P(WithCompute, TextsAreTheTargetsOwn) {
  const auto target = target::make_random_llama(target::tiny_llama_config(), 3, GetParam());
  draft::DraftSpec reduced = tiny_spec(*target);
  for (int64_t id = 0; id < 60; ++id) reduced.draft_ids.push_back(id);
  draft::DraftSpec anchor_first = tiny_spec(*target);
  anchor_first.rule.slot_shift = 1;
  for (const draft::DraftSpec& spec : {tiny_spec(*target), reduced, anchor_first}) {
    const auto proposer = make_draft_proposer(drafter_of(spec, GetParam()), *target);
    EXPECT_EQ(proposer->max_proposals(), spec.rule.slot_shift == 1 ? 5 : 4);
    for (double temperature : {0.0, 1.0}) {
      const std::vector<Request> requests = requests_of(8, temperature, 10, 7);
      std::vector<std::vector<int64_t>> expected;
      for (const Request& request : requests) {
        expected.push_back(generate(*target, nullptr, {request}).results[0].tokens);
      }
      for (int64_t batch : {1, 8}) {
        const auto run =
            generate(*target, proposer.get(), requests, {.max_batch = batch, .prefill_rows = 10});
        for (size_t i = 0; i < requests.size(); ++i) {
          EXPECT_EQ(run.results[i].tokens, expected[i]) << i << " batch " << batch;
          EXPECT_GT(run.results[i].counts.proposed(), 0);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WithCompute,
                         ::testing::Values(nn::Compute::kF32, nn::Compute::kBF16));

/// Forwards to a drafter's proposer and keeps what it proposed by anchor position.
class Watching final : public ForwardingProposer {
 public:
  using ForwardingProposer::ForwardingProposer;
  std::vector<Proposal> propose(std::span<const Sequence> sequences) override {
    auto lists = ForwardingProposer::propose(sequences);
    for (size_t i = 0; i < lists.size(); ++i) {
      EXPECT_LE(static_cast<int64_t>(lists[i].ids.size()), sequences[i].room);
      if (sequences[i].slot == 0) proposed[sequences[i].ids.size() - 1] = lists[i].ids;
    }
    return lists;
  }

  std::map<size_t, std::vector<int64_t>> proposed;
};

TEST(DraftProposer, DraftsDependOnTheCommittedTextAlone) {
  // Cold: the whole text so far is one prompt. Warm: the context grew pass by pass. Same drafts.
  const auto target = target::make_random_llama(target::tiny_llama_config(), 3);
  const auto proposer = make_draft_proposer(drafter_of(tiny_spec(*target)), *target);
  Watching warm(*proposer);
  const Request request{.prompt = {5, 6, 7}, .max_new_tokens = 30};
  const auto run = generate(*target, &warm, {request});
  ASSERT_GT(warm.proposed.size(), 3u);
  std::vector<int64_t> text = request.prompt;
  text.insert(text.end(), run.results[0].tokens.begin(), run.results[0].tokens.end());
  for (const auto& [anchor, drafts] : warm.proposed) {
    Watching cold(*proposer);
    const int64_t budget = static_cast<int64_t>(text.size() - anchor);
    const Request again{.prompt = {text.begin(), text.begin() + static_cast<int64_t>(anchor)},
                        .max_new_tokens = budget};
    int polls = 0;
    generate(*target, &cold, {again}, {.should_stop = [&] { return ++polls > 2; }});
    EXPECT_EQ(cold.proposed[anchor], drafts) << "anchor " << anchor;
  }
}

TEST(DraftProposer, ReducedVocabularyProposesTargetIds) {
  const auto target = target::make_random_llama(target::tiny_llama_config(), 3);
  draft::DraftSpec spec = tiny_spec(*target);
  spec.draft_ids = {90, 3, 41};
  const auto proposer = make_draft_proposer(drafter_of(spec), *target);
  Watching watching(*proposer);
  generate(*target, &watching, {{.prompt = {1, 2}, .max_new_tokens = 20}});
  for (const auto& [anchor, drafts] : watching.proposed) {
    EXPECT_THAT(drafts, ::testing::Each(::testing::AnyOf(90, 3, 41)));
  }
  const nn::Head head = draft_head(*target, *drafter_of(spec));
  const at::Tensor rows_RD = target->table().embed(at::arange(12, at::kLong));
  const at::Tensor full_RV = target->head().logits(rows_RD);
  EXPECT_TRUE(at::equal(head.logits(rows_RD), full_RV.index_select(1, head.id_V)));
}

/// Asks for all candidates before each draft.
class Asking final : public ForwardingProposer {
 public:
  Asking(DraftingProposer& inner, int64_t top)
      : ForwardingProposer(inner), inner_(inner), top_(top) {}
  std::vector<Proposal> propose(std::span<const Sequence> sequences) override {
    const auto slots = inner_.candidates(sequences, top_).at(0);
    const auto proposals = ForwardingProposer::propose(sequences);
    EXPECT_EQ(slots.size(), proposals[0].ids.size());
    for (size_t k = 0; k < slots.size(); ++k) {
      EXPECT_EQ(static_cast<int64_t>(slots[k].size()), top_);
      EXPECT_EQ(slots[k][0].id, proposals[0].ids[k]);
      EXPECT_TRUE(std::ranges::is_sorted(slots[k], std::greater<>(), &Candidate::probability));
      double sum = 0;
      for (const Candidate& one : slots[k]) sum += one.probability;
      sums.push_back(sum);
    }
    return proposals;
  }

  std::vector<double> sums;

 private:
  DraftingProposer& inner_;
  int64_t top_;
};

TEST(DraftProposer, CandidatesHaveTheirSharesOfTheWholeSoftmax) {
  const auto target = target::make_random_llama(target::tiny_llama_config(), 3);
  draft::DraftSpec spec = tiny_spec(*target);
  for (int64_t id = 20; id > 0; --id) spec.draft_ids.push_back(id);  // no multiple of a vector
  const auto proposer = make_draft_proposer(drafter_of(spec), *target);
  Asking all(*proposer, 20), some(*proposer, 3);
  generate(*target, &all, {{.prompt = {1, 2}, .max_new_tokens = 20}});
  ASSERT_GT(all.sums.size(), 3u);
  EXPECT_THAT(all.sums, ::testing::Each(::testing::DoubleNear(1, 1e-6)));
  generate(*target, &some, {{.prompt = {1, 2}, .max_new_tokens = 20}});
  EXPECT_THAT(some.sums, ::testing::Each(::testing::Lt(0.9)));
}

// Own tables equal to the target's change nothing; a head whose rows are turned by one proposes the
// next id everywhere, so it is the drafter's head that speaks.
TEST(DraftProposer, OwnTablesServeInsteadOfTheTargets) {
  const auto target = target::make_random_llama(target::tiny_llama_config(), 3);
  const draft::DraftSpec spec = tiny_spec(*target);
  const at::Tensor table_VD = target->table().weight_VD;
  const at::Tensor head_VD = target->head().linear.weight;
  const auto proposals = [&](const draft::OwnTables& tables) {
    const auto drafter = draft::Drafter::create(spec, nn::Compute::kF32, 7);
    drafter->set_own_tables(tables);
    drafter->pack();
    const auto proposer = make_draft_proposer(drafter, *target);
    Watching watching(*proposer);
    generate(*target, &watching, {{.prompt = {1, 2}, .max_new_tokens = 20}});
    return watching.proposed;
  };
  const auto borrowed = proposals({});
  EXPECT_EQ(proposals({table_VD, head_VD}), borrowed);
  const auto turned = proposals({at::Tensor(), head_VD.roll({1}, {0})});
  for (const auto& [anchor, drafts] : borrowed) {
    if (!turned.contains(anchor)) continue;  // other drafts, other anchors
    const int64_t expected = (drafts[0] + 1) % spec.vocab_size;
    EXPECT_EQ(turned.at(anchor)[0], expected) << "anchor " << anchor;
  }
  EXPECT_TRUE(turned.contains(2));
  EXPECT_NE(proposals({table_VD * -1.0, head_VD}), borrowed);
}

TEST(DraftProposer, RefusesWhatDoesNotFitTheTarget) {
  const auto target = target::make_random_llama(target::tiny_llama_config(), 3);
  const auto refused = [&](auto change) {
    draft::DraftSpec spec = tiny_spec(*target);
    change(spec);
    EXPECT_THROW(make_draft_proposer(drafter_of(spec), *target), Error);
  };
  refused([](draft::DraftSpec& spec) { spec.target_hidden_size = 64; });
  refused([](draft::DraftSpec& spec) { spec.vocab_size = 97; });
  refused([](draft::DraftSpec& spec) { spec.target_num_layers = 3; });
}

}  // namespace
}  // namespace dflash::decode
