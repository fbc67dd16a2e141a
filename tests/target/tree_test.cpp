// Trees of rows: every row has the bits of the chain that leads to it, a kept way leaves the state
// of that chain. Whole residuals, taps and logits are compared with equality.
#include "base/rng.h"
#include "helpers.h"
#include "target/random.h"

namespace dflash::target {
namespace {

struct Tree {
  std::vector<int64_t> ids, parents;

  std::vector<int64_t> way_to(int64_t row) const {
    std::vector<int64_t> way;
    for (; row >= 0; row = parents[static_cast<size_t>(row)]) way.insert(way.begin(), row);
    return way;
  }
  std::vector<int64_t> ids_of(const std::vector<int64_t>& way) const {
    std::vector<int64_t> chosen;
    for (const int64_t row : way) chosen.push_back(ids[static_cast<size_t>(row)]);
    return chosen;
  }
};

/// Depth first; one row in three goes back to some row of the way before it.
Tree random_tree(int64_t rows, uint64_t key) {
  Tree tree{{1}, {-1}};
  std::vector<int64_t> way = {0};
  for (int64_t row = 1; row < rows; ++row) {
    const auto draw = [&](uint64_t below, uint64_t what) {
      return uniform_below(below, {key, static_cast<uint64_t>(row), what});
    };
    if (draw(3, 0) == 0) way.resize(1 + draw(way.size(), 1));
    tree.parents.push_back(way.back());
    tree.ids.push_back(static_cast<int64_t>(draw(96, 2)));
    way.push_back(row);
  }
  return tree;
}

std::vector<int64_t> text_of(int64_t count, uint64_t key) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int64_t>(uniform_below(96, {key, static_cast<uint64_t>(i), 9})));
  }
  return ids;
}

TransformerConfig windowed_config() {
  TransformerConfig config = tiny_qwen3_config();
  config.windows.assign(static_cast<size_t>(config.num_layers), 21);
  return config;
}

struct Case {
  const char* name;
  TransformerConfig (*config)();
  nn::Compute compute;
};

class TreeTest : public testing::TestWithParam<Case> {
 protected:
  at::Tensor rows_of(const Hidden& hidden) {
    return at::cat({hidden.last_RD, hidden.taps_RF, logits(*target_, hidden.last_RD)}, 1);
  }
  /// A pass over trees, each behind its state; nothing is committed.
  at::Tensor tree_pass(const std::vector<std::pair<State*, const Tree*>>& trees) {
    std::vector<int64_t> ids, positions;
    std::vector<Segment> segments;
    for (const auto& [state, tree] : trees) {
      const auto rows = static_cast<int64_t>(tree->ids.size());
      segments.push_back({.state = state,
                          .first_row = static_cast<int64_t>(ids.size()),
                          .num_rows = rows,
                          .parents = tree->parents});
      ids.insert(ids.end(), tree->ids.begin(), tree->ids.end());
      for (int64_t row = 0; row < rows; ++row) {
        positions.push_back(state->length() + static_cast<int64_t>(tree->way_to(row).size()) - 1);
      }
    }
    return rows_of(target_->forward(
        {at::tensor(ids, at::kLong), at::tensor(positions, at::kLong), segments}, {{-1, 0}}));
  }
  /// The last row of a chain that is decoded token by token behind the text.
  at::Tensor plain(const std::vector<int64_t>& text, const std::vector<int64_t>& chain) {
    const auto state = target_->new_state();
    if (!text.empty()) advance(*target_, *state, text);
    at::Tensor last;
    for (const int64_t id : chain) last = rows_of(advance(*target_, *state, {id}, {-1, 0}));
    return last;
  }
  void expect_chains(const std::vector<int64_t>& text, const Tree& tree, const at::Tensor& rows) {
    for (int64_t row = 0; row < rows.size(0); ++row) {
      expect_bits_equal(rows.narrow(0, row, 1), plain(text, tree.ids_of(tree.way_to(row))),
                        fmt::format("row {} behind {}", row, text.size()));
    }
  }

  std::shared_ptr<const Target> target_ =
      make_random_target(GetParam().config(), 5, GetParam().compute);
};

TEST_P(TreeTest, RowsEqualPlainDecodingOfTheirWays) {
  for (const int64_t length : {0, 1, 31, 33, 118, 127, 128, 250}) {
    const std::vector<int64_t> text = text_of(length, 3);
    const Tree tree = random_tree(16, static_cast<uint64_t>(length));
    const auto state = target_->new_state();
    if (length > 0) advance(*target_, *state, text);
    expect_chains(text, tree, tree_pass({{state.get(), &tree}}));
  }
}

TEST_P(TreeTest, AKeptWayLeavesTheStateOfItsChain) {
  for (const int64_t length : {5, 30, 121, 126}) {
    const std::vector<int64_t> text = text_of(length, 4);
    const Tree tree = random_tree(14, 100 + static_cast<uint64_t>(length));
    for (int64_t row = 0; row < 14; row += 3) {
      const auto state = target_->new_state();
      advance(*target_, *state, text);
      tree_pass({{state.get(), &tree}});
      const std::vector<int64_t> way = tree.way_to(row);
      state->commit_path(way);
      EXPECT_EQ(state->length(), length + static_cast<int64_t>(way.size()));
      std::vector<int64_t> chain = tree.ids_of(way);
      chain.push_back(42);
      expect_bits_equal(rows_of(advance(*target_, *state, {42}, {-1, 0})), plain(text, chain),
                        fmt::format("after row {} behind {}", row, length));
    }
  }
}

// Tree after tree, each behind a way of the one before, beside another sequence.
TEST_P(TreeTest, TreesInABatchAndInTurn) {
  std::vector<int64_t> text_a = text_of(90, 5), text_b = text_of(7, 6);
  const auto a = target_->new_state(), b = target_->new_state();
  advance(*target_, *a, text_a);
  advance(*target_, *b, text_b);
  for (uint64_t turn = 0; turn < 12; ++turn) {
    const Tree tree_a = random_tree(16, 200 + turn), tree_b = random_tree(5, 300 + turn);
    const at::Tensor rows = tree_pass({{b.get(), &tree_b}, {a.get(), &tree_a}});
    if (turn % 4 == 0) expect_chains(text_b, tree_b, rows.narrow(0, 0, 5));
    if (turn % 4 == 1) expect_chains(text_a, tree_a, rows.narrow(0, 5, 16));
    const auto keep = [turn](State& state, const Tree& tree, std::vector<int64_t>& text) {
      const auto rows = static_cast<uint64_t>(tree.ids.size());
      const auto way = tree.way_to(static_cast<int64_t>(uniform_below(rows, {turn, rows})));
      state.commit_path(way);
      for (const int64_t id : tree.ids_of(way)) text.push_back(id);
    };
    keep(*a, tree_a, text_a), keep(*b, tree_b, text_b);
  }
  expect_bits_equal(rows_of(advance(*target_, *a, {42}, {-1, 0})), plain(text_a, {42}), "first");
  expect_bits_equal(rows_of(advance(*target_, *b, {42}, {-1, 0})), plain(text_b, {42}), "second");
}

TEST_P(TreeTest, AChainAsATreeIsTheChain) {
  const std::vector<int64_t> text = text_of(20, 7);
  const Tree chain{{1, 2, 3, 4}, {-1, 0, 1, 2}};
  const auto one = target_->new_state(), two = target_->new_state();
  advance(*target_, *one, text), advance(*target_, *two, text);
  expect_bits_equal(tree_pass({{one.get(), &chain}}),
                    rows_of(pass(*target_, {{two.get(), chain.ids}}, {-1, 0})), "chain");
  const std::vector<int64_t> way = {0, 1};
  one->commit_path(way), two->commit(2);
  expect_bits_equal(rows_of(advance(*target_, *one, {42}, {-1, 0})),
                    rows_of(advance(*target_, *two, {42}, {-1, 0})), "after two rows");
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    cases.push_back({"Llama", tiny_llama_config, compute});
    cases.push_back({"Qwen3", tiny_qwen3_config, compute});
    cases.push_back({"Windowed", windowed_config, compute});
    cases.push_back({"Qwen3Moe", tiny_qwen3_moe_config, compute});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, TreeTest, testing::ValuesIn(all_cases()), [](const auto& info) {
  return std::string(info.param.name) + std::string(nn::compute_name(info.param.compute));
});

// Recurrent layers have one state a row: they say so, and a tree there is our bug (DEC-05).
TEST(Trees, OnlyWhereTheTargetTakesThem) {
  const auto recurrent = make_random_target(tiny_qwen35_config(), 9, nn::Compute::kF32);
  EXPECT_FALSE(recurrent->takes_trees());
  const auto attention = make_random_llama(tiny_llama_config(), 1);
  EXPECT_TRUE(attention->takes_trees());
  const auto run = [](const Target& target, const std::vector<int64_t>& parents) {
    const auto state = target.new_state();
    const Segment segment = {.state = state.get(), .num_rows = 3, .parents = parents};
    target.forward(
        {at::tensor({1, 2, 3}, at::kLong), at::tensor({0, 1, 1}, at::kLong), {&segment, 1}}, {});
  };
  EXPECT_THROW(run(*recurrent, {-1, 0, 0}), std::logic_error);
  run(*attention, {-1, 0, 0});
  for (const std::vector<int64_t>& parents :
       {std::vector<int64_t>{-1, 0}, {-1, -1, 0}, {-1, 2, 0}, {0, 0, 0}, {-1, 0, 5}}) {
    EXPECT_THROW(run(*attention, parents), std::logic_error);
  }
}

TEST(Trees, TheContextEndsAtTheLongestWay) {
  TransformerConfig config = tiny_llama_config();
  config.max_positions = 8;
  const auto target = make_random_llama(config, 1);
  const auto state = target->new_state();
  advance(*target, *state, {1, 2, 3, 4, 5});
  const std::vector<int64_t> parents = {-1, 0, 0, 0, 3};  // five rows, three deep
  const Segment wide = {.state = state.get(), .num_rows = 5, .parents = parents};
  const at::Tensor ids = at::tensor({1, 2, 3, 4, 5}, at::kLong);
  target->forward({ids, at::tensor({5, 6, 6, 6, 7}, at::kLong), {&wide, 1}}, {});
  state->commit(1);
  EXPECT_NE(error_of([&] {
              target->forward({ids, at::tensor({6, 7, 7, 7, 7}, at::kLong), {&wide, 1}}, {});
            }).find("longer"),
            std::string::npos);
  const std::vector<int64_t> backwards = {0, 4, 3};
  EXPECT_THROW(state->commit_path(backwards), std::logic_error);
}

}  // namespace
}  // namespace dflash::target
