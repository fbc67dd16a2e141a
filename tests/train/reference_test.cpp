// The trainer against other programs (tests/golden/make_draft.py): ten steps of
// reference/dflash_reference.py, and the losses of speculators with their gradients.
#include <gtest/gtest.h>

#include "base/files.h"
#include "nn/norm.h"
#include "nn/tensor_io.h"
#include "support/record_error.h"
#include "support/temp_folder.h"
#include "train/stored_source.h"
#include "train/toy.h"

namespace dflash::train {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

constexpr double kEps = 1.2e-7;  // of f32

Tensors load(const std::string& name) {
  return nn::load_tensors(testing::source_path("tests/golden/draft/" + name + ".safetensors"));
}

std::shared_ptr<draft::Drafter> drafter_of(const Tensors& golden, int64_t target_hidden,
                                           const std::vector<block::LayerRule>& layers) {
  draft::DraftSpec spec;
  spec.num_layers = 2;
  spec.hidden_size = 24;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.intermediate_size = 40;
  spec.rms_norm_eps = 1e-5;
  spec.rope.theta = 10000.0;
  spec.taps = {1, 3};
  spec.target_hidden_size = target_hidden;
  spec.target_num_layers = 5;
  spec.vocab_size = 50;
  spec.rule = {.block_size = 4, .mask_id = 49, .slot_shift = 0, .layers = layers};
  Tensors weights;
  for (const auto& [name, tensor] : golden) {
    if (name.starts_with("weight.")) weights[name.substr(7)] = tensor.clone();
  }
  return draft::Drafter::from_weights(spec, nn::Compute::kF32, weights);
}

nn::Head head_of(const Tensors& golden) {
  nn::Head head;
  head.linear = nn::Linear(golden.at("head"), {}, nn::Compute::kF32);
  head.num_ids = golden.at("head").size(0);
  return head;
}

std::vector<uint8_t> mask_of(const Tensors& golden) {
  const auto mask = toy::values<int64_t>(golden.at("loss_mask"));
  return {mask.begin(), mask.end()};
}

// --- ten steps of the reference ---

/// The golden row as three documents (its padding is left away), all legal anchors every step, the
/// data's tokens as labels, and a rate that is constant: the first ten of 1e15 steps.
struct ReferenceRun {
  explicit ReferenceRun(OptimizerKind kind)
      : golden(load("inputs")), source(set, golden.at("taps"), golden.at("ids")) {
    const auto ids = toy::values<int64_t>(golden.at("ids"));
    const auto doc = toy::values<int64_t>(golden.at("doc"));
    const auto mask = mask_of(golden);
    for (size_t begin = 0, end = 0; begin < doc.size() && doc[begin] >= 0; begin = end) {
      while (end < doc.size() && doc[end] == doc[begin]) ++end;
      set.add({.ids = {ids.begin() + begin, ids.begin() + end},
               .loss_mask = {mask.begin() + begin, mask.begin() + end}});
    }
    model = drafter_of(golden, 20, {{}, {}});
    TrainOptions options;
    options.loss.labels = LabelSource::kDataToken;
    options.optimizer.kind = kind;
    options.optimizer.muon_steps = 5;  // the iterations of the reference
    options.optimizer.lr = 6e-3;
    options.anchors_per_document = options.anchors_per_step = options.anchors_per_pass = 1000;
    options.total_steps = 1'000'000'000'000'000;
    options.warmup_share = 0;
    trainer = std::make_unique<Trainer>(
        TrainParts{set, source, model, nn::Table{golden.at("table")}, head_of(golden)}, options);
  }

  Tensors golden;
  data::Dataset set;
  toy::StoredSource source;
  std::shared_ptr<draft::Drafter> model;
  std::unique_ptr<Trainer> trainer;
};

/// The golden has the curve in f64 and in f32. Their distance so far is what rounding alone does to
/// this curve; another order of sums may do it differently, so 8 times that, and 16 roundings.
void expect_reference_curve(OptimizerKind kind) {
  const Json curve = read_json(testing::source_path("tests/golden/draft/curve.json"));
  const std::string name(optimizer_name(kind));
  const auto want = curve.at(name).get<std::vector<double>>();
  const auto f32 = curve.at(name + "_f32").get<std::vector<double>>();
  ASSERT_EQ(want.size(), 10U);
  ReferenceRun run(kind);
  double noise = 0;
  for (size_t step = 0; step < want.size(); ++step) {
    noise = std::max(noise, std::abs(f32[step] - want[step]));
    const StepMetrics got = run.trainer->step();
    EXPECT_EQ(got.anchors, static_cast<int64_t>(curve.at("settings").at("anchors").size()));
    EXPECT_NEAR(got.loss, want[step], 8 * noise + 16 * kEps * want[step])
        << name << " step " << step;
  }
}

TEST(ReferenceCurve, Muon) {
  expect_reference_curve(OptimizerKind::kMuon);
}

TEST(ReferenceCurve, AdamW) {
  expect_reference_curve(OptimizerKind::kAdamW);
}

TEST(ReferenceCurve, BitEqualAfterReload) {
  for (const OptimizerKind kind : {OptimizerKind::kMuon, OptimizerKind::kAdamW}) {
    ReferenceRun whole(kind), first(kind), second(kind);
    const testing::TempFolder folder;
    for (int step = 0; step < 5; ++step) {
      EXPECT_EQ(first.trainer->step().loss, whole.trainer->step().loss) << "step " << step;
    }
    second.trainer->restore(
        load_checkpoint(save_checkpoint(folder.path(), first.trainer->checkpoint(-1))));
    for (int step = 5; step < 10; ++step) {
      EXPECT_EQ(second.trainer->step().loss, whole.trainer->step().loss) << "step " << step;
    }
    toy::expect_equal(toy::copy_weights(*second.model), toy::copy_weights(*whole.model));
  }
}

// --- speculators ---

/// One batch of theirs, through our drafter, losses and slot weights.
struct SpeculatorsBatch {
  SpeculatorsBatch(const std::string& name, block::InBlock in_block)
      : golden(load("speculators_" + name)),
        model(drafter_of(golden, 24, {{2, block::Bound::kAnchor, in_block}, {}})) {
    model->set_requires_grad(true);
    const auto ids = toy::values<int64_t>(golden.at("ids"));
    const auto doc = toy::values<int64_t>(golden.at("doc"));
    const auto mask = mask_of(golden);
    std::vector<int64_t> pos;
    for (size_t t = 0; t < doc.size(); ++t) {
      pos.push_back(t > 0 && doc[t] == doc[t - 1] ? pos.back() + 1 : 0);
    }
    blocks = block::training_blocks(model->spec().rule, {ids, mask, doc},
                                    toy::values<int64_t>(golden.at("anchors")));
    const at::Tensor embed = nn::Table{golden.at("table")}.embed(
        at::tensor(blocks.ids_NK, at::kLong).view({blocks.num_blocks, blocks.block_size}));
    hidden_SD =
        model->forward(model->context(golden.at("taps"), at::tensor(pos, at::kLong)), blocks, embed)
            .flatten(0, 1);
    std::vector<int64_t> slots, teacher_rows;
    for (size_t i = 0; i < blocks.weight_NK.size(); ++i) {
      if (blocks.weight_NK[i] == 0) continue;
      slots.push_back(static_cast<int64_t>(i));
      teacher_rows.push_back(blocks.teacher_row_NK[i]);
    }
    slot_M = at::tensor(slots, at::kLong);
    const Vocabulary vocabulary(head_of(golden), nn::Compute::kF32);
    const at::Tensor last_MD =
        golden.at("last").index_select(0, at::tensor(teacher_rows, at::kLong));
    rows.hidden_MD = hidden_SD.detach().index_select(0, slot_M);
    rows.teacher_MD = nn::rms_norm(last_MD, at::ones({24}, at::kFloat), 1e-5);
    rows.label_M = vocabulary.logits(rows.teacher_MD).argmax(-1);
  }

  /// Loss and the backward pass, both divided as they do: by the number of trained slots + 1e-5,
  /// where ours divides by the sum of weights.
  double run(const LossOptions& options) {
    const Vocabulary vocabulary(head_of(golden), nn::Compute::kF32);
    const RowLosses losses = row_losses(vocabulary, options, rows);
    std::vector<float> prob_NK(blocks.weight_NK.size(), 0.0F);
    const auto slot = toy::values<int64_t>(slot_M);
    const auto prob = toy::values<float>(losses.label_prob_M);
    for (size_t m = 0; m < slot.size(); ++m) prob_NK[slot[m]] = prob[m];
    const auto weight_NK = slot_weights({model->spec().rule, options}, blocks.weight_NK, prob_NK);
    const at::Tensor weight_M = at::tensor(weight_NK, at::kFloat).index_select(0, slot_M);
    const double count = static_cast<double>(slot.size()) + 1e-5;
    at::Tensor grad_SD = at::zeros_like(hidden_SD);
    grad_SD.index_copy_(0, slot_M, losses.grad_MD * (weight_M / count).unsqueeze(-1));
    hidden_SD.backward(grad_SD);
    return (losses.loss_M * weight_M).sum(at::kDouble).item<double>() / count;
  }

  Tensors golden;
  std::shared_ptr<draft::Drafter> model;
  block::Blocks blocks;
  at::Tensor hidden_SD, slot_M;  // S = N * K
  LossRows rows;
};

/// What is the same there: KL(target | drafter) at temperature 1 over the whole draft vocabulary;
/// labels are the target's argmax; D-PACE takes exp(-ce) of trained slots, 1 for the others, does
/// not decay besides and passes no gradient. What differs is the divisor alone (run()).
void expect_speculators(const std::string& key, const LossOptions& options) {
  for (const auto& [name, in_block] :
       {std::pair("causal", block::InBlock::kCausal),
        std::pair("bidirectional", block::InBlock::kBidirectional)}) {
    SCOPED_TRACE(fmt::format("{} {}", name, key));
    SpeculatorsBatch batch(name, in_block);
    const double want = batch.golden.at("loss." + key).item<double>();
    const double loss = batch.run(options);
    report::record_error("loss", std::abs(loss - want), 256 * kEps * want);
    EXPECT_NEAR(loss, want, 256 * kEps * want);
    for (const auto& [parameter, tensor] : batch.model->parameters()) {
      const at::Tensor& grad = batch.golden.at(fmt::format("grad.{}.{}", key, parameter));
      const double bound = 256 * kEps * std::max(1.0, grad.abs().max().item<double>());
      const at::Tensor gap = (tensor.grad() - grad).abs();
      report::record_error("gradients", gap.max().item<double>(), bound);
      EXPECT_LE(gap.max().item<double>(), bound)
          << parameter << " at element " << gap.argmax().item<int64_t>();
      EXPECT_GT(grad.abs().max().item<double>(), 100 * bound) << parameter;
    }
  }
}

TEST(Speculators, CrossEntropy) {
  expect_speculators("ce", {});
}

TEST(Speculators, Kl) {
  expect_speculators("kl_div", {.terms = {{LossKind::kKl, 1.0}}});
}

/// Loss and gradient of every row, before any weight: tests/golden/make_draft.py losses.
TEST(Speculators, EveryLossRowByRow) {
  const Tensors golden = load("speculators_losses");
  const Vocabulary vocabulary(head_of(golden), nn::Compute::kF32);
  const LossRows rows{golden.at("hidden"), golden.at("label"), golden.at("teacher")};
  const std::pair<const char*, LossKind> losses[] = {
      {"ce", LossKind::kCrossEntropy},   {"kl_div", LossKind::kKl}, {"rkl", LossKind::kReverseKl},
      {"jsd", LossKind::kJsd},           {"tv", LossKind::kTv},     {"nla", LossKind::kNla},
      {"lk_hybrid", LossKind::kLkHybrid}};
  for (const auto& [name, kind] : losses) {
    SCOPED_TRACE(name);
    LossOptions options;
    options.terms = {{kind, 1.0}};
    const RowLosses got = row_losses(vocabulary, options, rows);
    for (const auto& [what, value] : {std::pair("loss", got.loss_M), {"grad", got.grad_MD}}) {
      const at::Tensor& want = golden.at(fmt::format("{}.{}", what, name));
      const double norm = std::max(1.0, want.abs().max().item<double>());
      // c = 256 roundings relative to the largest logits (~60 in the far rows).
      const double gap = (value - want).abs().max().item<double>();
      report::record_error(fmt::format("{}, {}", name, what), gap, 256 * kEps * norm);
      EXPECT_LE(gap, 256 * kEps * norm) << what;
    }
  }
}

TEST(Speculators, Dpace) {
  expect_speculators("dpace", {.slot_weights = SlotWeights::kDpace, .dpace_alpha = 0.5});
}

}  // namespace
}  // namespace dflash::train
