// Rows: however they are batched, chunked, verified and rolled back, a row's result is the same
// bits. The tests compare whole residuals, taps and logits with equality.
#include "helpers.h"
#include "target/random.h"

namespace dflash::target {
namespace {

std::vector<int64_t> random_ids(int64_t count, int64_t seed) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back((seed * 7919 + i * i * 31 + i * 17) % 96);
  return ids;
}

struct Case {
  const char* name;
  TransformerConfig (*config)();
  nn::Compute compute;
};

class RowsTest : public testing::TestWithParam<Case> {
 protected:
  /// Logits of every row of a cold one-shot pass.
  at::Tensor cold(const std::vector<int64_t>& ids) {
    const auto state = target_->new_state();
    return rows_of(advance(*target_, *state, ids, {-1, 0}));
  }
  at::Tensor rows_of(const Hidden& hidden) {
    return at::cat({hidden.last_RD, hidden.taps_RF, logits(*target_, hidden.last_RD)}, 1);
  }

  std::shared_ptr<const Target> target_ =
      make_random_target(GetParam().config(), 5, GetParam().compute);
};

// R-CAP-3: chunks 4 + 4 + 2 and 1 + 9 equal one shot.
TEST_P(RowsTest, ChunkedPrefillEqualsOneShot) {
  const std::vector<int64_t> ids = random_ids(10, 1);
  const at::Tensor want = cold(ids);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{4, 4, 2}, {1, 9}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
    const auto state = target_->new_state();
    std::vector<at::Tensor> parts;
    auto next = ids.begin();
    for (const int64_t size : sizes) {
      parts.push_back(rows_of(advance(*target_, *state, {next, next + size}, {-1, 0})));
      next += size;
    }
    EXPECT_EQ(state->length(), 10);
    expect_bits_equal(at::cat(parts), want, fmt::format("chunks {}", sizes));
  }
}

TEST_P(RowsTest, LongChunksCrossEveryKernelEdge) {
  const std::vector<int64_t> ids = random_ids(301, 2);
  const at::Tensor want = cold(ids);
  const auto state = target_->new_state();
  std::vector<at::Tensor> parts;
  for (size_t at = 0, size = 1; at < ids.size(); at += size, size = size * 2 + 1) {
    const size_t end = std::min(ids.size(), at + size);
    parts.push_back(
        rows_of(advance(*target_, *state, {ids.begin() + at, ids.begin() + end}, {-1, 0})));
  }
  expect_bits_equal(at::cat(parts), want, "doubling chunks");
}

TEST_P(RowsTest, BatchEqualsAloneAndNeighboursDoNotMatter) {
  const std::vector<int64_t> a = random_ids(7, 3), b = random_ids(12, 4), c = random_ids(12, 5);
  for (const std::vector<int64_t>& other : {b, c}) {
    const auto s = target_->new_state(), t = target_->new_state();
    const at::Tensor rows = rows_of(pass(*target_, {{s.get(), a}, {t.get(), other}}, {-1, 0}));
    expect_bits_equal(rows.narrow(0, 0, 7), cold(a), "first sequence");
    expect_bits_equal(rows.narrow(0, 7, 12), cold(other), "second sequence");
    s->commit(7);
    t->commit(12);
    // Next pass: the other way round, one row of one and a block of the other.
    const at::Tensor next =
        rows_of(pass(*target_, {{t.get(), {9, 8, 7}}, {s.get(), {1}}}, {-1, 0}));
    std::vector<int64_t> longer = a;
    longer.push_back(1);
    expect_bits_equal(next.narrow(0, 3, 1), cold(longer).narrow(0, 7, 1), "one row of the first");
  }
}

// R-CAP-4: prompts that share a prefix, after a rollback, equal cold runs.
TEST_P(RowsTest, CommitAndRollbackEqualColdRuns) {
  const auto state = target_->new_state();
  expect_bits_equal(rows_of(pass(*target_, {{state.get(), {1, 2, 3, 4, 5}}}, {-1, 0})),
                    cold({1, 2, 3, 4, 5}), "first prompt");
  state->commit(3);
  EXPECT_EQ(state->length(), 3);
  expect_bits_equal(rows_of(pass(*target_, {{state.get(), {9, 9, 9}}}, {-1, 0})),
                    cold({1, 2, 3, 9, 9, 9}).narrow(0, 3, 3), "second prompt");
  state->commit(0);
  expect_bits_equal(rows_of(advance(*target_, *state, {7}, {-1, 0})),
                    cold({1, 2, 3, 7}).narrow(0, 3, 1), "after a full rollback");
}

TEST_P(RowsTest, VerificationOfABlockEqualsPlainSteps) {
  const std::vector<int64_t> prompt = random_ids(20, 6), block = random_ids(16, 7);
  const auto plain = target_->new_state(), verify = target_->new_state();
  advance(*target_, *plain, prompt);
  advance(*target_, *verify, prompt);
  std::vector<at::Tensor> steps;
  for (const int64_t id : block) steps.push_back(rows_of(advance(*target_, *plain, {id}, {-1, 0})));
  expect_bits_equal(rows_of(advance(*target_, *verify, block, {-1, 0})), at::cat(steps), "block");
}

TEST_P(RowsTest, PositionsAreRotaryOnly) {
  // Storage follows the state; a shift of all positions leaves attention (relative) nearly alone.
  const auto state = target_->new_state();
  const std::vector<int64_t> ids = random_ids(6, 8);
  const std::vector<Segment> segments = {{state.get(), 0, 6}};
  const Hidden shifted = target_->forward(
      {at::tensor(ids, at::kLong), at::arange(100, 106, at::kLong), segments}, {{-1, 0}});
  const at::Tensor want = cold(ids);
  const double eps = GetParam().compute == nn::Compute::kF32 ? 1.2e-7 : 1.0 / 256;
  expect_within(rows_of(shifted), want, 32 * eps * want.abs().max().item<double>(), "shifted");
}

TEST_P(RowsTest, ResultsOfAPassAreCopies) {
  const auto state = target_->new_state();
  const Hidden first = advance(*target_, *state, {1, 2, 3}, {0});
  const at::Tensor kept = rows_of({first.last_RD.clone(), first.taps_RF.clone()});
  advance(*target_, *state, {4, 5, 6}, {0});
  expect_bits_equal(rows_of(first), kept, "first pass after the second");
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    cases.push_back({"Llama", tiny_llama_config, compute});
    cases.push_back({"Qwen3", tiny_qwen3_config, compute});
    cases.push_back({"Qwen3Moe", tiny_qwen3_moe_config, compute});
    cases.push_back({"Qwen35", tiny_qwen35_config, compute});
    cases.push_back({"Qwen35Moe", tiny_qwen35_moe_config, compute});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, RowsTest, testing::ValuesIn(all_cases()), [](const auto& info) {
  return std::string(info.param.name) + std::string(nn::compute_name(info.param.compute));
});

TEST(Rows, ErrorsLeaveTheStateAsItWas) {
  TransformerConfig config = tiny_llama_config();
  config.max_positions = 8;
  const auto target = make_random_llama(config, 1);
  const auto state = target->new_state();
  advance(*target, *state, {1, 2, 3});
  EXPECT_NE(error_of([&] {
              pass(*target, {{state.get(), {4, 96}}});
            }).find("96"),
            std::string::npos);
  EXPECT_THROW(pass(*target, {{state.get(), {-1}}}), Error);
  EXPECT_NE(error_of([&] {
              pass(*target, {{state.get(), {1, 2, 3, 4, 5, 6}}});
            }).find("longer"),
            std::string::npos);
  EXPECT_THROW(pass(*target, {{state.get(), {1}}}, {2}), Error);
  EXPECT_THROW(pass(*target, {{state.get(), {1}}}, {-2}), Error);
  advance(*target, *state, {4});
  EXPECT_EQ(state->length(), 4);
}

TEST(Rows, MisuseIsOurBug) {
  const auto target = make_random_llama(tiny_llama_config(), 1);
  const auto other = make_random_llama(tiny_llama_config(), 1);
  const auto state = target->new_state();
  EXPECT_THROW(pass(*target, {{state.get(), {1}}, {state.get(), {1}}}), std::logic_error);
  EXPECT_THROW(pass(*other, {{state.get(), {1}}}), std::logic_error);
  pass(*target, {{state.get(), {1, 2}}});
  EXPECT_THROW(pass(*target, {{state.get(), {3}}}), std::logic_error);
  EXPECT_THROW(state->commit(3), std::logic_error);
  state->commit(2);
}

}  // namespace
}  // namespace dflash::target
