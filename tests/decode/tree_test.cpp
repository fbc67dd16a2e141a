// Proposals as rows, the n-gram model, the best-first search.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "decode/ngram_model.h"
#include "decode/pass_costs.h"
#include "decode/proposal.h"
#include "decode/tree_search.h"

namespace dflash::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr DraftTree::Limits kWide = {.room = 9, .vocab_size = 100};

TEST(DraftTree, RowsAreDepthFirstAndMerged) {
  // 5 -> (6 -> 7, 8), 9, and 5 -> 8 -> 4 again as ways of their own.
  const DraftTree tree({{5, 9, 6, 8, 7, 5, 8, 4}, {-1, -1, 0, 0, 2, -1, 5, 6}}, kWide);
  EXPECT_THAT(tree.draft_ids(), ElementsAre(5, 6, 7, 8, 4, 9));
  EXPECT_THAT(tree.parents(), ElementsAre(-1, 0, 1, 2, 1, 4, 0));
  EXPECT_EQ(tree.depth(0), 0);
  EXPECT_EQ(tree.depth(5), 3);
  EXPECT_EQ(tree.proposed(), 3);
  EXPECT_EQ(tree.child(1, 8), 4);
  EXPECT_EQ(tree.child(0, 8), -1);
  EXPECT_EQ(tree.child(4, 4), 5);
}

TEST(DraftTree, ChainsAreSaidToBeChains) {
  EXPECT_THAT(DraftTree(Proposal({1, 2, 3}), kWide).parents(), IsEmpty());
  EXPECT_THAT(DraftTree({{1, 2, 3}, {-1, 0, 1}}, kWide).parents(), IsEmpty());
  EXPECT_THAT(DraftTree({{1, 1, 2}, {-1, -1, 1}}, kWide).parents(), IsEmpty());
  EXPECT_EQ(DraftTree().num_rows(), 1);
}

TEST(DraftTree, LimitsHold) {
  const Proposal fork({1, 2, 3, 4, 5}, {-1, 0, 1, 0, 3});
  EXPECT_THAT(DraftTree(fork, {.room = 2, .vocab_size = 100}).draft_ids(), ElementsAre(1, 2, 4));
  EXPECT_THAT(DraftTree(fork, {.room = 9, .vocab_size = 100, .branches = false}).draft_ids(),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(DraftTree(fork, {.room = 0, .vocab_size = 100}).draft_ids(), IsEmpty());
  // An id that the target does not know takes its descendants along, but was proposed.
  const DraftTree foreign({{1, 100, 3, 4}, {-1, 0, 1, 0}}, kWide);
  EXPECT_THAT(foreign.draft_ids(), ElementsAre(1, 4));
  EXPECT_EQ(foreign.proposed(), 3);
}

TEST(DraftTree, WrongParentsAreLeftOut) {
  EXPECT_THAT(DraftTree({{1, 2, 3}, {-1, 1, 7}}, kWide).draft_ids(), ElementsAre(1));
  EXPECT_THAT(DraftTree({{1, 2, 3}, {-1, -2, 1}}, kWide).draft_ids(), ElementsAre(1));
  EXPECT_THAT(DraftTree({{1, 2, 3}, {-1}}, kWide).draft_ids(), IsEmpty());
}

std::vector<int64_t> ids_of(const std::vector<Candidate>& candidates) {
  std::vector<int64_t> ids;
  for (const Candidate& one : candidates) ids.push_back(one.id);
  return ids;
}

TEST(NgramModel, LongerMatchesComeFirstThenLaterOnes) {
  NgramModel model;
  model.extend(std::vector<int64_t>{1, 2, 3, 4, 5, 3, 9, 1, 2, 3});
  EXPECT_THAT(ids_of(model.next({})), ElementsAre(4, 9));
  const std::vector<int64_t> way = {9};
  EXPECT_THAT(ids_of(model.next(way)), ElementsAre(1));
  const std::vector<int64_t> unknown = {77};
  EXPECT_THAT(model.next(unknown), IsEmpty());
  double sum = 0;
  for (const Candidate& one : model.next({})) sum += one.probability;
  EXPECT_LT(sum, 1.0);
  NgramModel other;
  other.extend(std::vector<int64_t>{7, 1, 7, 2, 7});
  EXPECT_THAT(ids_of(other.next({})), ElementsAre(2, 1));
}

TEST(NgramModel, ALoopIsFollowedAsFarAsOneLikes) {
  NgramModel model;
  model.extend(std::vector<int64_t>{1, 2, 3, 1, 2, 3});
  std::vector<int64_t> way;
  for (int i = 0; i < 10; ++i) way.push_back(model.next(way).at(0).id);
  EXPECT_THAT(way, ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3, 1));
}

TEST(NgramModel, TrustFollowsWhatWasRight) {
  NgramModel right, wrong;
  std::vector<int64_t> loop, changing;
  for (int64_t i = 0; i < 60; ++i) {
    loop.push_back(i % 5);
    changing.push_back(i % 2 == 0 ? 1 : 100 + i);  // after 1 comes something new each time
  }
  right.extend(loop), wrong.extend(changing);
  EXPECT_GT(right.next({}).at(0).probability, 0.8);
  const std::vector<int64_t> one = {1};
  double sum = 0;
  for (const Candidate& next : wrong.next(one)) sum += next.probability;
  EXPECT_LT(sum, 0.1);
}

TEST(NgramModel, StepByStepIsTheSameAsAtOnce) {
  std::vector<int64_t> text;
  for (int64_t i = 0; i < 200; ++i) text.push_back((i * i * 7 + i) % 11);
  NgramModel steps, once;
  for (size_t i = 1; i <= text.size(); ++i) steps.extend(std::span(text).first(i));
  once.extend(text);
  const std::vector<Candidate> a = steps.next({}), b = once.next({});
  ASSERT_EQ(ids_of(a), ids_of(b));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].probability, b[i].probability);
}

/// Slots of independent candidates, as a drafter gives them.
TreeSearch::Children slots(std::vector<std::vector<Candidate>> by_depth) {
  return [by_depth](size_t, std::span<const int64_t> way) {
    return way.size() < by_depth.size() ? by_depth[way.size()] : std::vector<Candidate>();
  };
}

// The product of the slots' probabilities orders the nodes (DDTree).
TEST(TreeSearch, BestFirst) {
  const auto children = slots({{{1, 0.6}, {2, 0.3}}, {{3, 0.5}, {4, 0.4}}});
  const TreeSearch::Sequence one = {.room = 9};
  const TreeSearch search({&one, 1}, children, {.max_nodes = 5});
  std::vector<int64_t> ids, parents;
  for (const auto& node : search.nodes()) ids.push_back(node.id), parents.push_back(node.parent);
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 4, 3));  // .6, .3 (2), .3 (1 3), .24, .15
  EXPECT_THAT(parents, ElementsAre(-1, -1, 0, 0, 1));
  EXPECT_DOUBLE_EQ(search.expected(2), 0.9);
  const Proposal cut = search.proposals(3)[0];
  EXPECT_THAT(cut.ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(cut.parents, ElementsAre(-1, -1, 0));
}

TEST(TreeSearch, SequencesShareTheNodes) {
  const TreeSearch::Sequence two[] = {{.room = 9}, {.room = 1}};
  const auto children = [](size_t sequence, std::span<const int64_t>) {
    return sequence == 0 ? std::vector<Candidate>{{1, 0.5}} : std::vector<Candidate>{{2, 0.9}};
  };
  const TreeSearch search(two, children, {.max_nodes = 4});
  const auto proposals = search.proposals(static_cast<int64_t>(search.nodes().size()));
  EXPECT_THAT(proposals[0].ids, ElementsAre(1, 1, 1));
  EXPECT_THAT(proposals[1].ids, ElementsAre(2));
}

TEST(TreeSearch, ChainsWhereNothingMayBranch) {
  const TreeSearch::Sequence chain = {.room = 9, .branches = false};
  const auto children = slots({{{1, 0.3}, {2, 0.6}}, {{3, 0.5}, {4, 0.4}}, {{5, 0.1}}});
  const TreeSearch search({&chain, 1}, children, {.max_nodes = 9});
  EXPECT_THAT(search.proposals(3)[0].ids, ElementsAre(2, 3, 5));
}

TEST(TreeSearch, NothingHopelessNorWithoutANumber) {
  const TreeSearch::Sequence one = {.room = 9};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto children = slots({{{1, nan}, {2, 0.5}, {3, 0.01}}, {{4, 0.1}}});
  const TreeSearch search({&one, 1}, children, {.max_nodes = 9, .min_probability = 0.06});
  EXPECT_THAT(search.proposals(1)[0].ids, ElementsAre(2));
  EXPECT_EQ(search.nodes().size(), 1u);
}

TEST(PassCosts, RowsOfOneKindShareACost) {
  EXPECT_EQ(PassCosts::widest_alike(1), 1);
  EXPECT_EQ(PassCosts::widest_alike(3), 3);
  EXPECT_EQ(PassCosts::widest_alike(5), 6);
  EXPECT_EQ(PassCosts::widest_alike(16), 16);
  EXPECT_EQ(PassCosts::widest_alike(17), 32);
  EXPECT_EQ(PassCosts::widest_alike(33), 48);
  PassCosts costs(/*tiles=*/true);
  EXPECT_EQ(costs.of(1), 1);  // in passes of one row
  EXPECT_DOUBLE_EQ(costs.of(7), 1.3);
  EXPECT_DOUBLE_EQ(PassCosts(/*tiles=*/false).of(7), 2.19);
  costs.add(4, 2.0);
  EXPECT_EQ(costs.of(1), 0.5);  // gets tried
  EXPECT_DOUBLE_EQ(costs.of(16), 2.0 * 1.4 / 1.2);
  costs.add(14, 3.0);
  EXPECT_EQ(costs.of(16), 3.0);
  EXPECT_EQ(costs.of(4), 2.0);
  EXPECT_DOUBLE_EQ(costs.of(3), 1.5);
}

TEST(PassCosts, ASlowMomentIsForgottenWithoutBeingRunAgain) {
  PassCosts costs(/*tiles=*/true);
  costs.add(16, 9.0);
  for (int i = 0; i < 3000; ++i) costs.add(1, 1.0);
  EXPECT_LT(costs.of(16), 1.1);
  costs.add(1, 100.0);  // one outlier moves little
  EXPECT_LT(costs.of(1), 1.1);
}

}  // namespace
}  // namespace dflash::decode
