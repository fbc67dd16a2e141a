// The delta net's state after partial acceptance: as if only the kept rows had ever been fed.
// FAULTS DEC-03 to DEC-06.
#include "helpers.h"
#include "target/random.h"

namespace dflash::target {
namespace {

std::vector<int64_t> some_ids(int64_t count, int64_t seed) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back((seed * 131 + i * i * 7 + i * 29) % 96);
  return ids;
}

class Recurrent : public testing::TestWithParam<nn::Compute> {
 protected:
  /// The residual of one more row, which sees everything the state holds.
  at::Tensor probe(State& state) { return advance(*target_, state, {42}, {0, 1, 2, 3}).taps_RF; }
  at::Tensor after_cold(const std::vector<int64_t>& ids) {
    const auto state = target_->new_state();
    advance(*target_, *state, ids);
    return probe(*state);
  }

  std::shared_ptr<const Target> target_ = make_random_target(tiny_qwen35_config(), 9, GetParam());
};

// R-DEC-4: every number of kept rows, 0 and all included, shorter and longer than the convolution.
TEST_P(Recurrent, KeptRowsAloneMakeTheState) {
  const std::vector<int64_t> prompt = some_ids(9, 1), block = some_ids(7, 2);
  for (int64_t kept = 0; kept <= 7; ++kept) {
    const auto state = target_->new_state();
    advance(*target_, *state, prompt);
    pass(*target_, {{state.get(), block}});
    state->commit(kept);
    std::vector<int64_t> text = prompt;
    text.insert(text.end(), block.begin(), block.begin() + kept);
    expect_bits_equal(probe(*state), after_cold(text), fmt::format("{} of 7 rows", kept));
  }
}

TEST_P(Recurrent, ShortTextsStartFromZeros) {
  for (int64_t kept = 0; kept <= 2; ++kept) {
    const auto state = target_->new_state();
    const std::vector<int64_t> ids = {5, 6, 7};
    pass(*target_, {{state.get(), ids}});
    state->commit(kept);
    const auto fresh = target_->new_state();
    if (kept > 0) advance(*target_, *fresh, {ids.begin(), ids.begin() + kept});
    expect_bits_equal(probe(*state), probe(*fresh), fmt::format("{} of 3 rows", kept));
  }
}

// R-DEC-5: drafts (accept 2), a plain step, drafts (accept 0 and its bonus), drafts (accept all).
TEST_P(Recurrent, MixedStepsInABatch) {
  const auto a = target_->new_state(), b = target_->new_state();
  std::vector<int64_t> text_a = some_ids(5, 3), text_b = some_ids(2, 4);
  pass(*target_, {{a.get(), text_a}, {b.get(), text_b}});
  a->commit(5), b->commit(2);
  const auto step = [&](std::vector<int64_t> rows_a, int64_t keep_a, std::vector<int64_t> rows_b,
                        int64_t keep_b) {
    pass(*target_, {{b.get(), rows_b}, {a.get(), rows_a}});
    a->commit(keep_a), b->commit(keep_b);
    text_a.insert(text_a.end(), rows_a.begin(), rows_a.begin() + keep_a);
    text_b.insert(text_b.end(), rows_b.begin(), rows_b.begin() + keep_b);
  };
  step({1, 2, 3, 4}, 3, {9}, 1);
  step({8}, 1, {7, 6, 5}, 1);
  step({3, 3, 3, 3}, 1, {4, 4, 4, 4, 4, 4}, 6);
  step({11, 12, 13, 14}, 4, {15, 16}, 1);
  expect_bits_equal(probe(*a), after_cold(text_a), "first");
  expect_bits_equal(probe(*b), after_cold(text_b), "second");
}

TEST_P(Recurrent, WithoutUndoTheSameBitsAndOnlyAllRows) {
  const std::vector<int64_t> ids = some_ids(6, 5);
  const auto state = target_->new_state();
  const auto run = [&](const std::vector<int64_t>& part) {
    const auto count = static_cast<int64_t>(part.size());
    const std::vector<Segment> segments = {{state.get(), 0, count, /*undo=*/false}};
    return target_->forward(
        {at::tensor(part, at::kLong),
         at::arange(state->length(), state->length() + count, at::kLong), segments},
        {});
  };
  run({ids.begin(), ids.begin() + 2});
  state->commit(2);
  run({ids.begin() + 2, ids.end()});
  EXPECT_THROW(state->commit(3), std::logic_error);
  state->commit(4);
  expect_bits_equal(probe(*state), after_cold(ids), "two passes without undo");
}

INSTANTIATE_TEST_SUITE_P(Compute, Recurrent, testing::Values(nn::Compute::kF32, nn::Compute::kBF16),
                         [](const auto& info) {
                           return std::string(nn::compute_name(info.param));
                         });

// Qwen3.6-27B's layout, scaled down: 64 blocks, three delta nets to one attention, 16 key and 48
// value heads' ratio, default taps 1, 16, 31, 46, 61.
TEST(Capture, LayoutOfQwen36) {
  TransformerConfig config = tiny_qwen35_config();
  config.num_layers = 64;
  config.mixers.clear();
  for (int64_t layer = 0; layer < 64; ++layer) {
    config.mixers.push_back(layer % 4 == 3 ? Mixer::kAttention : Mixer::kDelta);
  }
  config.num_heads = 6, config.num_kv_heads = 1;
  config.delta = {.key_heads = 1, .value_heads = 3, .key_dim = 8, .value_dim = 8, .conv_taps = 4};
  const auto target = make_random_target(config, 3);
  const std::vector<int64_t> taps = default_taps(64, 5), ids = some_ids(21, 6);
  EXPECT_EQ(taps, (std::vector<int64_t>{1, 16, 31, 46, 61}));
  const auto whole = target->new_state(), apart = target->new_state();
  const at::Tensor want = advance(*target, *whole, ids, taps).taps_RF;
  ASSERT_EQ(want.sizes(), (std::vector<int64_t>{21, 5 * 32}));
  EXPECT_TRUE(want.isfinite().all().item<bool>());
  std::vector<at::Tensor> parts;
  for (size_t at = 0, size = 1; at < ids.size(); at += size, size += 2) {
    const size_t end = std::min(ids.size(), at + size);
    parts.push_back(advance(*target, *apart, {ids.begin() + at, ids.begin() + end}, taps).taps_RF);
  }
  expect_bits_equal(at::cat(parts), want, "taps in chunks");
  // Each tap is the residual after its own block.
  const auto again = target->new_state();
  const at::Tensor one = advance(*target, *again, ids, {31}).taps_RF;
  expect_bits_equal(want.narrow(1, 2 * 32, 32), one, "third tap");
}

}  // namespace
}  // namespace dflash::target
