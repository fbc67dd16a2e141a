// What projects of this kind are known to have lost weeks to, a test each through the real parts.
// Noise that reached the labels: tests/train/batch_test.cpp.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <gtest/gtest.h>

#include "doctor/world.h"
#include "train/losses.h"

namespace dflash::doctor {
namespace {

constexpr int64_t kTokens = 40, kTaps = 5;

std::shared_ptr<const target::Target> deep_target() {
  target::TransformerConfig config = target::tiny_llama_config();
  config.num_layers = 64;
  return target::make_random_llama(config, 3);
}

/// Five taps of a target of 64 blocks, B = 16.
draft::DraftSpec deep_spec(const target::Target& target,
                           const std::vector<block::LayerRule>& layers) {
  draft::DraftSpec spec = spec_for(target, layers);
  spec.taps = target::default_taps(64, kTaps);
  spec.rule.block_size = 16;
  return spec;
}

/// One document and a drafter's training forward over it, with features of our choice.
struct Forward {
  draft::DraftSpec spec;
  std::shared_ptr<draft::Drafter> drafter;
  std::vector<int64_t> ids, doc;
  std::vector<uint8_t> mask;
  at::Tensor taps_TF;

  explicit Forward(const std::vector<block::LayerRule>& layers)
      : spec(deep_spec(*small_target(), layers)), doc(kTokens, 0), mask(kTokens, 1) {
    spec.target_num_layers = 64;
    drafter = draft::small_drafter(spec, nn::Compute::kF32);
    for (int64_t t = 0; t < kTokens; ++t) ids.push_back(1 + t);
    taps_TF = draft::random_tensor({kTokens, kTaps * spec.target_hidden_size}, 5);
  }

  /// Hidden rows of the block at `anchor`, from features of which some columns of a row are set.
  at::Tensor hidden(int64_t anchor, const at::Tensor& features) const {
    const c10::NoGradGuard no_grad;
    const auto blocks = block::training_blocks(spec.rule, {ids, mask, doc}, {&anchor, 1});
    const at::Tensor embed = draft::random_tensor({1, 16, spec.hidden_size}, 6);
    return drafter->forward(drafter->context(features, at::arange(kTokens, at::kLong)), blocks,
                            embed);
  }
  at::Tensor without_row(int64_t row) const {
    at::Tensor features = taps_TF.clone();
    features.select(0, row).zero_();
    return features;
  }
};

TEST(History, AnAnchorAt24SeesRows0To23AndNoOther) {
  const Forward world({{}, {}});
  const at::Tensor whole = world.hidden(24, world.taps_TF);
  for (int64_t row = 0; row < kTokens; ++row) {
    const bool same = at::equal(world.hidden(24, world.without_row(row)), whole);
    EXPECT_EQ(same, row >= 24) << "row " << row;
  }
}

TEST(History, AnAnchorAt0HasNoContextAndWorks) {
  const Forward world({{}, {}});
  const at::Tensor hidden = world.hidden(0, world.taps_TF);
  EXPECT_TRUE(at::isfinite(hidden).all().item<bool>());
  EXPECT_TRUE(at::equal(hidden, world.hidden(0, at::zeros_like(world.taps_TF))));
}

TEST(History, FiveTapsInFiveUsed) {
  const Forward world({{}, {}});
  const int64_t width = world.spec.target_hidden_size;
  const at::Tensor whole = world.hidden(24, world.taps_TF);
  for (int64_t tap = 0; tap < kTaps; ++tap) {
    at::Tensor features = world.taps_TF.clone();
    features.narrow(1, tap * width, width).zero_();
    EXPECT_FALSE(at::equal(world.hidden(24, features), whole)) << "tap " << tap;
  }
}

TEST(History, EveryLayerHasItsOwnWindow) {
  const block::LayerRule near{.window = 4};
  const Forward both({near, near}), mixed({near, {}}), turned({{}, near});
  for (const Forward* world : {&both, &mixed, &turned}) {
    const bool same =
        at::equal(world->hidden(24, world->without_row(2)), world->hidden(24, world->taps_TF));
    EXPECT_EQ(same, world == &both) << "row 2 is outside both windows, inside no full layer";
  }
  EXPECT_FALSE(at::equal(mixed.hidden(24, mixed.taps_TF), turned.hidden(24, turned.taps_TF)));
}

TEST(History, TargetsComeFromBlock63Of64) {
  const auto target = deep_target();
  const data::Dataset dataset = own_answers(*target, small_prompts(1), {.max_new_tokens = 32});
  const auto taps = target::default_taps(64, kTaps);
  EXPECT_EQ(taps, (std::vector<int64_t>{1, 16, 31, 46, 61}));
  const auto length = static_cast<int64_t>(dataset.document_ids(0).size());
  const auto row = train::live_source(dataset, target, taps, /*with_last=*/true)
                       ->row({{.document = 0, .length = length}});
  const auto argmax_after = [&](int64_t block) {
    const at::Tensor residual_TD = hidden_states(*target, dataset, {block}).front();
    const at::Tensor ids = target->head().argmax(target->final_norm(residual_TD));
    return std::vector<int64_t>(ids.const_data_ptr<int64_t>(),
                                ids.const_data_ptr<int64_t>() + ids.numel());
  };
  EXPECT_EQ(row.argmax, argmax_after(63));
  EXPECT_NE(row.argmax, argmax_after(61)) << "the test could not tell";
  EXPECT_TRUE(at::equal(row.last_TD, hidden_states(*target, dataset, {63}).front()));
}

TEST(History, GammaIs4AndEverySettingSaysSo) {
  const train::LossOptions options;
  EXPECT_EQ(options.gamma, 4.0);
  EXPECT_EQ(options.to_json().at("gamma"), 4.0);
  EXPECT_NE(train::describe_loss(options).find("exp(-(k-1)/4)"), std::string::npos);
  block::BlockRule rule{.block_size = 8, .mask_id = 1, .layers = {{}}};
  const auto decay = block::slot_decay(rule, options.gamma);
  EXPECT_NEAR(decay[5] / decay[1], std::exp(-1.0), 1e-6);
}

}  // namespace
}  // namespace dflash::doctor
