#include "train/batch.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/finite.h"
#include "train/toy.h"

namespace dflash::train {
namespace {

using toy::World;

// R-TR-4: the schedule's total is the real number of updates, short last steps included.
TEST(RowStream, CountsItsSteps) {
  World world;
  RowStream stream(world.set, world.options);
  int64_t steps = 0;
  for (; stream.position().epoch < 3; ++steps) {
    const auto rows = stream.next_step();
    if (rows.front().epoch == 3) break;
    int64_t anchors = 0;
    for (const auto& row : rows) {
      EXPECT_EQ(row.epoch, rows.front().epoch);
      anchors += row.anchors;
    }
    EXPECT_GT(anchors, 0);
  }
  EXPECT_EQ(steps, RowStream(world.set, world.options).count_steps(3));
}

TEST(RowStream, EveryDocumentOnceAnEpoch) {
  World world;
  RowStream stream(world.set, world.options);
  std::map<int64_t, int> seen;
  while (true) {
    const auto rows = stream.next_step();
    if (rows.front().epoch > 0) break;
    for (const auto& row : rows) {
      for (const auto& piece : row.pieces) ++seen[piece.document];
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), world.set.num_documents());
  for (const auto& [document, count] : seen) EXPECT_EQ(count, 1) << document;
}

// CK-07: seeking by documents gives the rows an unbroken stream would give.
TEST(RowStream, SeekContinues) {
  World world;
  RowStream whole(world.set, world.options);
  for (int i = 0; i < 5; ++i) {
    RowStream resumed(world.set, world.options);
    resumed.seek(whole.position());
    const auto a = whole.next_step(), b = resumed.next_step();
    ASSERT_EQ(a.size(), b.size());
    for (size_t r = 0; r < a.size(); ++r) {
      ASSERT_EQ(a[r].pieces.size(), b[r].pieces.size());
      for (size_t p = 0; p < a[r].pieces.size(); ++p) {
        EXPECT_EQ(a[r].pieces[p].document, b[r].pieces[p].document);
      }
    }
  }
  EXPECT_THROW(whole.seek({0, 99}), Error);
}

TEST(RowStream, NothingSupervisedIsAnError) {
  data::Dataset set;
  set.add({.ids = {1, 2, 3}, .loss_mask = {0, 0, 1}});
  EXPECT_THROW(RowStream(set, {}), Error);
}

// LOSS-04: teacher of slot k is the target's choice at row a+k-1, which names token a+k.
TEST(Pass, LabelsAreTheTargetsChoices) {
  World world;
  const Vocabulary vocabulary(world.head, nn::Compute::kF32);
  FeatureRow row = world.source.row({{0, static_cast<int64_t>(world.set.document_ids(0).size())}});
  row.argmax[4] = 17;  // what the target would say after token 4
  world.options.anchors_per_document = 100;
  const auto passes = make_passes(row, 0, toy::spec().rule, world.options, vocabulary);
  ASSERT_EQ(passes.size(), 1U);
  int64_t found = 0;
  for (int64_t m = 0; m < passes[0].slot_M.numel(); ++m) {
    const auto slot = passes[0].slot_M[m].item<int64_t>();
    const int64_t anchor = passes[0].blocks.anchor_N[slot / 4], k = slot % 4;
    const auto label = passes[0].label_M[m].item<int64_t>();
    EXPECT_GT(k, 0);
    EXPECT_EQ(passes[0].teacher_row_M[m].item<int64_t>(), anchor + k - 1);
    EXPECT_EQ(label, anchor + k == 5 ? 17 : row.ids[anchor + k]);
    found += anchor + k == 5 ? 1 : 0;
  }
  EXPECT_GT(found, 0);
  world.options.loss.labels = LabelSource::kDataToken;
  const auto tokens = make_passes(row, 0, toy::spec().rule, world.options, vocabulary);
  for (int64_t m = 0; m < tokens[0].slot_M.numel(); ++m) {
    const auto slot = tokens[0].slot_M[m].item<int64_t>();
    EXPECT_EQ(tokens[0].label_M[m].item<int64_t>(),
              row.ids[tokens[0].blocks.anchor_N[slot / 4] + slot % 4]);
  }
}

TEST(Pass, LabelOutsideTheDraftVocabularyIsAMissWithoutLoss) {
  World world;
  world.head.id_V = at::arange(0, toy::kVocab, 2, at::kLong);  // even ids only
  world.head.linear = nn::Linear(toy::normal({toy::kVocab / 2, toy::kWidth}, 2), {}, world.compute);
  const Vocabulary vocabulary(world.head, nn::Compute::kF32);
  const FeatureRow row =
      world.source.row({{1, static_cast<int64_t>(world.set.document_ids(1).size())}});
  const auto passes = make_passes(row, 0, toy::spec().rule, world.options, vocabulary);
  const Pass& pass = passes.at(0);
  int64_t supervised = 0, trained = 0;
  for (size_t i = 0; i < pass.supervised_NK.size(); ++i) {
    supervised += pass.supervised_NK[i];
    trained += pass.trained_NK[i] > 0 ? 1 : 0;
    if (pass.trained_NK[i] > 0) {
      EXPECT_EQ(pass.supervised_NK[i], 1);
    }
  }
  EXPECT_EQ(trained, pass.slot_M.numel());
  EXPECT_LT(trained, supervised);
  EXPECT_GE(pass.label_M.min().item<int64_t>(), 0);
}

TEST(Noise, TouchesACopyOfTheTapsOnly) {
  World world;
  const FeatureRow row = world.source.row({{0, 6}, {3, 6}});
  const at::Tensor before = row.taps_TF.clone();
  const NoiseOptions gaussian{.kind = NoiseKind::kGaussian, .scale = 0.5};
  const at::Tensor a = noisy_taps(row, gaussian, {0.5, 1, 7}),
                   b = noisy_taps(row, gaussian, {0.5, 1, 7});
  EXPECT_TRUE(row.taps_TF.equal(before));
  EXPECT_TRUE(a.equal(b));
  EXPECT_FALSE(a.equal(noisy_taps(row, gaussian, {0.5, 1, 8})));
  const double std = (a - before).std().item<double>();
  EXPECT_NEAR(std, 0.5, 0.06);  // 384 draws: 3 standard errors
  const at::Tensor uniform =
      noisy_taps(row, {.kind = NoiseKind::kUniform, .scale = 0.5}, {0.5, 1, 7}) - before;
  EXPECT_LE(uniform.abs().max().item<double>(), 0.5001);
  EXPECT_TRUE(noisy_taps(row, {}, {0.0, 1, 7}).is_same(row.taps_TF));
}

// Labels, teacher rows and what they are read from are the same bits with and without noise.
TEST(Noise, LeavesLabelsAndTeacherAlone) {
  World world;
  const Vocabulary vocabulary(world.head, nn::Compute::kF32);
  const block::BlockRule rule = toy::spec().rule;
  const FeatureRow clean = world.source.row({{0, 6}, {3, 6}});
  const std::vector<Pass> want = make_passes(clean, 0, rule, world.options, vocabulary);
  for (const NoiseKind kind : {NoiseKind::kGaussian, NoiseKind::kUniform}) {
    for (const bool anneal : {false, true}) {
      world.options.noise = {.kind = kind, .scale = 0.5, .anneal = anneal};
      for (const int64_t step : {0, 5}) {
        const FeatureRow row = world.source.row({{0, 6}, {3, 6}});
        const double scale = noise_scale(world.options.noise, step, 10);
        const at::Tensor taps = noisy_taps(row, world.options.noise, {scale, 1, step});
        EXPECT_GT((taps - clean.taps_TF).abs().max().item<double>(), scale / 4);
        EXPECT_TRUE(row.last_TD.equal(clean.last_TD));
        EXPECT_EQ(row.argmax, clean.argmax);
        const std::vector<Pass> got = make_passes(row, 0, rule, world.options, vocabulary);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(got[i].label_M.equal(want[i].label_M));
          EXPECT_TRUE(got[i].teacher_row_M.equal(want[i].teacher_row_M));
          EXPECT_TRUE(got[i].slot_M.equal(want[i].slot_M));
        }
      }
    }
  }
}

TEST(Noise, ConstantOrHalfACosine) {
  const NoiseOptions constant{.kind = NoiseKind::kUniform, .scale = 0.5};
  const NoiseOptions annealed{.kind = NoiseKind::kUniform, .scale = 0.5, .anneal = true};
  for (const int64_t step : {0, 3, 10}) EXPECT_EQ(noise_scale(constant, step, 10), 0.5);
  EXPECT_EQ(noise_scale(annealed, 0, 12), 0.5);
  EXPECT_NEAR(noise_scale(annealed, 4, 12), 0.375, 1e-12);
  EXPECT_NEAR(noise_scale(annealed, 6, 12), 0.25, 1e-12);
  EXPECT_NEAR(noise_scale(annealed, 12, 12), 0.0, 1e-12);
}

TEST(IsFinite, BothTypes) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    at::Tensor values = at::full({1000}, 3e38, at::kFloat).to(type);
    if (type == at::kBFloat16) values.fill_(1e30);
    EXPECT_TRUE(nn::is_finite(values));
    values[999] = NAN;
    EXPECT_FALSE(nn::is_finite(values));
    values[999] = 0;
    values[0] = -INFINITY;
    EXPECT_FALSE(nn::is_finite(values));
  }
}

}  // namespace
}  // namespace dflash::train
