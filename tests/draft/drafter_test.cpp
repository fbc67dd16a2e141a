// The drafter as a whole: training forward and decoding forward agree (R-LOSS-6, MODELS.md 9.6),
// the anchor's own feature never matters (9.7, R-MASK-4), blocks do not see each other, positions
// are relative (R-DEC-10), weights are checked by name.
#include "draft/drafter.h"

#include "base/error.h"
#include "draft/average.h"
#include "draft/fixtures.h"

namespace dflash::draft {
namespace {

using block::Bound;
using block::InBlock;
using block::LayerRule;

constexpr LayerRule kFull{};

std::vector<std::vector<LayerRule>> all_modes() {
  std::vector<std::vector<LayerRule>> modes = {{kFull, kFull}};
  for (const Bound bound : {Bound::kQuery, Bound::kAnchor}) {
    for (const InBlock in_block : {InBlock::kBidirectional, InBlock::kCausal}) {
      modes.push_back({{3, bound, in_block}, kFull});
      modes.push_back({{1, bound, in_block}, {1, bound, in_block}});
      modes.push_back({{6, bound, in_block}, {6, bound, in_block}});
    }
  }
  return modes;
}

std::string name_of(const std::vector<LayerRule>& layers) {
  return describe(layers[0]) + " / " + describe(layers[1]);
}

struct Batch {
  TestRow row{{9, 14, 3}};
  std::vector<int64_t> anchors{0, 4, 9, 15, 21, 23};
  at::Tensor taps_TF = random_tensor({26, 40}, 21);
  at::Tensor table_VD = random_tensor({50, 24}, 22);

  block::Blocks blocks(const DraftSpec& spec) const {
    return block::training_blocks(spec.rule, row.packed(), anchors);
  }
  at::Tensor embed(const block::Blocks& b) const {
    return table_VD.index_select(0, at::tensor(b.ids_NK, at::kLong))
        .view({b.num_blocks, b.block_size, -1});
  }
  at::Tensor train(const Drafter& drafter) const {
    const c10::NoGradGuard no_grad;
    const block::Blocks b = blocks(drafter.spec());
    return drafter.forward(drafter.context(taps_TF, row.positions()), b, embed(b));
  }
};

// Decoding of the same blocks, one context each, filled in pieces as decoding does.
at::Tensor decode(const Drafter& drafter, const Batch& batch, bool together) {
  const block::Blocks train_blocks = batch.blocks(drafter.spec());
  std::vector<std::unique_ptr<SequenceContext>> contexts;
  std::vector<block::DecodingAnchor> anchors;
  for (int64_t n = 0; n < train_blocks.num_blocks; ++n) {
    const int64_t begin = train_blocks.doc_begin_N[n], anchor = train_blocks.anchor_N[n];
    contexts.push_back(drafter.new_context());
    for (int64_t first = begin; first < anchor; first += 3) {
      const int64_t rows = std::min<int64_t>(3, anchor - first);
      SequenceContext* context = contexts.back().get();
      drafter.append({&context, 1}, {&rows, 1}, batch.taps_TF.narrow(0, first, rows),
                     batch.row.positions().narrow(0, first, rows));
    }
    EXPECT_EQ(contexts.back()->length(), anchor - begin);
    anchors.push_back({batch.row.ids[anchor], anchor - begin});
  }
  std::vector<SequenceContext*> pointers;
  for (const auto& context : contexts) pointers.push_back(context.get());
  if (together) {
    const block::Blocks b = block::decoding_blocks(drafter.spec().rule, anchors);
    return drafter.forward(pointers, b, batch.embed(b));
  }
  std::vector<at::Tensor> rows;
  for (size_t n = 0; n < anchors.size(); ++n) {
    const block::Blocks b = block::decoding_blocks(drafter.spec().rule, {&anchors[n], 1});
    rows.push_back(drafter.forward(std::span(&pointers[n], 1), b, batch.embed(b)));
  }
  return at::cat(rows);
}

TEST(Drafter, TrainingEqualsDecodingF32) {  // R-LOSS-6
  for (const auto& mode : all_modes()) {
    const auto drafter = small_drafter(small_spec(mode), nn::Compute::kF32);
    const Batch batch;
    // c * eps * norm: rows of size ~1, two layers of products of up to 40 terms; c = 64.
    expect_close(decode(*drafter, batch, false), batch.train(*drafter), 64 * 1.2e-7 * 3,
                 name_of(mode));
  }
}

TEST(Drafter, TrainingEqualsDecodingBf16) {  // R-LOSS-6
  const auto drafter =
      small_drafter(small_spec({kFull, {5, Bound::kQuery, InBlock::kCausal}}), nn::Compute::kBF16);
  const Batch batch;
  expect_close(decode(*drafter, batch, false), batch.train(*drafter), 16 * 0.0039, "bf16");
}

TEST(Drafter, DecodingTogetherEqualsAloneBitForBit) {
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    const auto drafter =
        small_drafter(small_spec({kFull, {3, Bound::kQuery, InBlock::kCausal}}), compute);
    const Batch batch;
    EXPECT_TRUE(decode(*drafter, batch, true).equal(decode(*drafter, batch, false)));
  }
}

TEST(Drafter, BiasIsUsedByBothCallers) {
  DraftSpec spec = small_spec({kFull, kFull});
  const Batch batch;
  const at::Tensor without = batch.train(*small_drafter(spec, nn::Compute::kF32));
  spec.attention_bias = true;
  const auto drafter = small_drafter(spec, nn::Compute::kF32);
  const at::Tensor with = batch.train(*drafter);
  EXPECT_GT((with - without).abs().max().item<double>(), 1e-2);
  expect_close(decode(*drafter, batch, true), with, 64 * 1.2e-7 * 3, "bias");
}

TEST(Drafter, ManyBlocksAtOnceEqualEachAlone) {
  for (const auto& mode : all_modes()) {
    const auto drafter = small_drafter(small_spec(mode), nn::Compute::kF32);
    Batch batch;
    const at::Tensor together = batch.train(*drafter);
    const std::vector<int64_t> all = batch.anchors;
    for (size_t n = 0; n < all.size(); ++n) {
      batch.anchors = {all[n]};
      expect_close(batch.train(*drafter)[0], together[static_cast<int64_t>(n)], 64 * 1.2e-7 * 3,
                   name_of(mode));
    }
  }
}

TEST(Drafter, FeatureOfTheAnchorNeverMatters) {  // R-MASK-4, MODELS.md 9.7
  const auto drafter = small_drafter(small_spec({kFull, kFull}), nn::Compute::kF32);
  Batch batch{.row = TestRow({12}), .anchors = {4, 6}, .taps_TF = random_tensor({12, 40}, 23)};
  const at::Tensor before = batch.train(*drafter);
  const auto changed = [&](int64_t position) {
    Batch other = batch;
    other.taps_TF = batch.taps_TF.clone();
    other.taps_TF[position].add_(1.0);
    const at::Tensor after = batch.train(*drafter).sub(other.train(*drafter)).abs();
    return std::pair{after[0].max().item<double>() > 1e-4, after[1].max().item<double>() > 1e-4};
  };
  EXPECT_EQ(changed(6), std::pair(false, false));
  EXPECT_EQ(changed(7), std::pair(false, false));
  EXPECT_EQ(changed(5), std::pair(false, true));
  EXPECT_EQ(changed(4), std::pair(false, true));
  EXPECT_EQ(changed(3), std::pair(true, true));
  EXPECT_EQ(changed(0), std::pair(true, true));
}

TEST(Drafter, RowsBeyondTheAnchorInTheContextAreNotSeen) {
  const auto drafter = small_drafter(small_spec({kFull, kFull}), nn::Compute::kF32);
  const Batch batch;
  const auto run = [&](int64_t rows) {
    const auto context = drafter->new_context();
    SequenceContext* pointer = context.get();
    drafter->append({&pointer, 1}, {&rows, 1}, batch.taps_TF.narrow(0, 0, rows),
                    at::arange(rows, at::kLong));
    const block::DecodingAnchor anchor{7, 5};
    const block::Blocks b = block::decoding_blocks(drafter->spec().rule, {&anchor, 1});
    return drafter->forward({&pointer, 1}, b, batch.embed(b));
  };
  EXPECT_TRUE(run(5).equal(run(8)));
}

TEST(Drafter, ShiftedPositionsGiveTheSameRows) {  // R-DEC-10
  const auto drafter = small_drafter(small_spec({kFull, kFull}), nn::Compute::kF32);
  const Batch batch;
  block::Blocks b = batch.blocks(drafter->spec());
  const at::Tensor at_0 =
      drafter->forward(drafter->context(batch.taps_TF, batch.row.positions()), b, batch.embed(b));
  for (int64_t& pos : b.pos_NK) pos += 1000;
  const at::Tensor at_1000 = drafter->forward(
      drafter->context(batch.taps_TF, batch.row.positions() + 1000), b, batch.embed(b));
  expect_close(at_1000, at_0, 1e-4, "offset 1000");
}

TEST(Drafter, EveryParameterReachesTheOutput) {
  DraftSpec spec = small_spec({kFull, {3, Bound::kQuery, InBlock::kCausal}});
  spec.attention_bias = true;
  const auto drafter = small_drafter(spec, nn::Compute::kF32);
  drafter->set_requires_grad(true);
  const Batch batch;
  const block::Blocks b = batch.blocks(spec);
  drafter->forward(drafter->context(batch.taps_TF, batch.row.positions()), b, batch.embed(b))
      .pow(3)
      .sum()
      .backward();
  for (const auto& [name, tensor] : drafter->parameters()) {
    ASSERT_TRUE(tensor.grad().defined()) << name;
    EXPECT_TRUE(tensor.grad().isfinite().all().item<bool>()) << name;
    // A bias of k adds the same to every key before the per-head norm, so even it counts.
    EXPECT_GT(tensor.grad().abs().max().item<double>(), 1e-6) << name;
  }
}

TEST(Drafter, NoGradForwardUsesLiveWeights) {
  const auto drafter = small_drafter(small_spec({kFull, kFull}), nn::Compute::kF32);
  drafter->set_requires_grad(true);
  const Batch batch;
  const at::Tensor before = batch.train(*drafter);
  EXPECT_FALSE(before.requires_grad());
  {
    const c10::NoGradGuard no_grad;
    drafter->parameters().at("layers.1.mlp.up_proj.weight").mul_(2.0);
  }
  EXPECT_GT((batch.train(*drafter) - before).abs().max().item<double>(), 1e-3);
  drafter->pack();
  expect_close(decode(*drafter, batch, true), batch.train(*drafter), 64 * 1.2e-7 * 3, "repacked");
}

TEST(Drafter, CreateIsKeyedBySeedAndName) {
  const DraftSpec spec = small_spec({kFull, kFull});
  const auto a = Drafter::create(spec, nn::Compute::kF32, 1);
  const auto b = Drafter::create(spec, nn::Compute::kF32, 1);
  const auto c = Drafter::create(spec, nn::Compute::kF32, 2);
  for (const auto& [name, tensor] : a->parameters()) {
    EXPECT_TRUE(tensor.equal(b->parameters().at(name))) << name;
    if (tensor.dim() == 2) {
      EXPECT_FALSE(tensor.equal(c->parameters().at(name))) << name;
      EXPECT_NEAR(tensor.std().item<double>(), 0.02, 0.003) << name;
    } else {
      EXPECT_TRUE(tensor.eq(1).all().item<bool>()) << name;
    }
  }
  EXPECT_FALSE(a->parameters()
                   .at("layers.0.mlp.up_proj.weight")
                   .equal(a->parameters().at("layers.1.mlp.up_proj.weight")));
}

TEST(Drafter, StartsFromTargetLayers) {
  const DraftSpec spec = small_spec({kFull, kFull});
  const auto drafter = Drafter::create(spec, nn::Compute::kF32, 1);
  const at::Tensor q = random_tensor({32, 24}, 8), norm = random_tensor({24}, 9);
  drafter->init_from_target_layers(
      {{{"self_attn.q_proj.weight", q}}, {{"input_layernorm.weight", norm}}}, norm);
  EXPECT_TRUE(drafter->parameters().at("layers.0.self_attn.q_proj.weight").equal(q));
  EXPECT_TRUE(drafter->parameters().at("layers.1.input_layernorm.weight").equal(norm));
  EXPECT_TRUE(drafter->parameters().at("norm.weight").equal(norm));
  EXPECT_THROW(drafter->init_from_target_layers({{{"self_attn.q_proj.weight", norm}}, {}}, {}),
               Error);
  EXPECT_THROW(drafter->init_from_target_layers({{{"mlp.gate.weight", q}}, {}}, {}), Error);
  EXPECT_THROW(drafter->init_from_target_layers({{}}, {}), Error);
}

TEST(Drafter, WeightsAreCheckedByName) {
  const DraftSpec spec = small_spec({kFull, kFull});
  const auto good = small_drafter(spec, nn::Compute::kF32)->parameters();
  const auto message = [&](const std::map<std::string, at::Tensor>& weights) {
    try {
      Drafter::from_weights(spec, nn::Compute::kF32, weights);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(good), "");
  auto bad = good;
  bad.erase("layers.1.self_attn.q_norm.weight");
  EXPECT_NE(message(bad).find("layers.1.self_attn.q_norm.weight"), std::string::npos);
  bad = good;
  bad["layers.2.self_attn.q_norm.weight"] = at::ones({8});
  EXPECT_NE(message(bad).find("layers.2.self_attn.q_norm.weight"), std::string::npos);
  bad = good;
  bad["fc.weight"] = at::ones({24, 41});
  EXPECT_NE(message(bad).find("fc.weight"), std::string::npos);
}

TEST(Average, IsTheMeanOfAllParameters) {
  const DraftSpec spec = small_spec({kFull, kFull});
  std::vector<std::shared_ptr<Drafter>> all;
  for (const uint64_t seed : {1, 2, 3}) {
    all.push_back(Drafter::create(spec, nn::Compute::kF32, seed));
  }
  std::map<std::string, at::Tensor> want;
  for (const auto& [name, value] : all[0]->parameters()) {
    want[name] = (value + all[1]->parameters().at(name) + all[2]->parameters().at(name)) / 3;
  }
  average_in(*all[0], {all[1], all[2]});
  for (const auto& [name, value] : all[0]->parameters()) {
    EXPECT_LT((value - want.at(name)).abs().max().item<double>(), 1e-6) << name;
  }
}

TEST(Average, NamesWhatDiffers) {
  const auto expect_refused = [](const DraftSpec& other, const std::string& what) {
    const auto drafter = Drafter::create(small_spec({kFull, kFull}), nn::Compute::kF32, 1);
    try {
      average_in(*drafter, {Drafter::create(other, nn::Compute::kF32, 1)});
      ADD_FAILURE() << "no error for another " << what;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  DraftSpec taps = small_spec({kFull, kFull}), wide = taps, ids = taps;
  taps.taps.back() += 1;
  expect_refused(taps, "taps");
  wide.intermediate_size *= 2;
  expect_refused(wide, "mlp.down_proj.weight");
  ids.draft_ids = {1, 2, 3};
  expect_refused(ids, "draft vocabulary");
  expect_refused(small_spec({kFull, kFull}, 6), "block size");
  expect_refused(small_spec({kFull, {3, Bound::kQuery, InBlock::kBidirectional}}), "rule");
}

}  // namespace
}  // namespace dflash::draft
