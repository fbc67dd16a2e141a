// Ten steps against a f64 reference written from the formulas (tests/golden/make_train.py): loss,
// gradient norm and final weights, under both optimizers and in bf16; and the same ten steps again
// after save and reload, bit for bit.
#include <gtest/gtest.h>

#include "nn/tensor_io.h"
#include "support/temp_folder.h"
#include "train/stored_source.h"
#include "train/toy.h"

namespace dflash::train {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

const Tensors& golden() {
  static const Tensors tensors =
      nn::load_tensors(testing::source_path("tests/golden/train/curve.safetensors"));
  return tensors;
}

/// Every step takes the whole dataset with all legal anchors, so no random choice is involved.
struct GoldenRun {
  GoldenRun(OptimizerKind kind, nn::Compute compute)
      : source(set, golden().at("taps"), golden().at("argmax")) {
    const auto offsets = toy::values<int64_t>(golden().at("offsets"));
    const auto ids = toy::values<int64_t>(golden().at("ids"));
    const auto mask = toy::values<uint8_t>(golden().at("loss_mask"));
    for (size_t d = 0; d + 1 < offsets.size(); ++d) {
      set.add({.ids = {ids.begin() + offsets[d], ids.begin() + offsets[d + 1]},
               .loss_mask = {mask.begin() + offsets[d], mask.begin() + offsets[d + 1]}});
    }
    Tensors weights;
    for (const auto& [name, tensor] : golden()) {
      if (name.starts_with("start.")) weights[name.substr(6)] = tensor.clone();
    }
    model = draft::Drafter::from_weights(toy::spec(), compute, weights);
    nn::Head head;
    head.linear = nn::Linear(golden().at("head"), {}, compute);
    head.num_ids = toy::kVocab;
    TrainOptions options;
    options.optimizer.kind = kind;
    options.optimizer.muon_steps = 5;  // the iterations of the reference
    options.optimizer.lr = 3e-3;
    options.anchors_per_document = options.anchors_per_step = options.anchors_per_pass = 1000;
    options.total_steps = 10;
    trainer = std::make_unique<Trainer>(
        TrainParts{set, source, model, nn::Table{golden().at("table")}, head}, options);
  }

  data::Dataset set;
  toy::StoredSource source;
  std::shared_ptr<draft::Drafter> model;
  std::unique_ptr<Trainer> trainer;
};

void expect_curve(OptimizerKind kind, nn::Compute compute, double loss_bound, double weight_bound) {
  const std::string name(optimizer_name(kind));
  SCOPED_TRACE(name);
  GoldenRun run(kind, compute);
  const auto losses = toy::values<double>(golden().at(name + ".loss"));
  const auto norms = toy::values<double>(golden().at(name + ".grad_norm"));
  for (size_t step = 0; step < losses.size(); ++step) {
    const StepMetrics got = run.trainer->step();
    EXPECT_NEAR(got.loss, losses[step], loss_bound * losses[step]) << "step " << step;
    EXPECT_NEAR(got.grad_norm, norms[step], 4 * loss_bound * norms[step]) << "step " << step;
  }
  for (const auto& [parameter, tensor] : run.model->parameters()) {
    const at::Tensor gap = (tensor.detach() - golden().at(name + ".end." + parameter)).abs();
    EXPECT_LE(gap.max().item<double>(), weight_bound) << parameter;
  }
}

// f32 against f64: ten steps amplify a rounding of 6e-8 about a thousandfold.
TEST(Curve, F32EqualsReference) {
  expect_curve(OptimizerKind::kMuon, nn::Compute::kF32, 1e-4, 1e-3);
  expect_curve(OptimizerKind::kAdamW, nn::Compute::kF32, 1e-4, 1e-3);
}

// bf16 products (relative 2^-8): the curve is the same to a few per cent. AdamW divides by the
// size of a gradient, so weights whose gradient is all rounding may differ by whole steps.
TEST(Curve, Bf16FollowsReference) {
  expect_curve(OptimizerKind::kMuon, nn::Compute::kBF16, 0.03, 0.2);
  expect_curve(OptimizerKind::kAdamW, nn::Compute::kBF16, 0.03, 0.05);
}

TEST(Curve, BitEqualAfterReload) {
  for (const auto compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    GoldenRun whole(OptimizerKind::kMuon, compute), first(OptimizerKind::kMuon, compute),
        second(OptimizerKind::kMuon, compute);
    const testing::TempFolder folder;
    std::vector<double> losses;
    for (int step = 0; step < 10; ++step) losses.push_back(whole.trainer->step().loss);
    for (int step = 0; step < 5; ++step) EXPECT_EQ(first.trainer->step().loss, losses[step]);
    const auto path = save_checkpoint(folder.path(), first.trainer->checkpoint(-1));
    second.trainer->restore(load_checkpoint(path));
    for (int step = 5; step < 10; ++step) EXPECT_EQ(second.trainer->step().loss, losses[step]);
    toy::expect_equal(toy::copy_weights(*second.model), toy::copy_weights(*whole.model));
  }
}

}  // namespace
}  // namespace dflash::train
