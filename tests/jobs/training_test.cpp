// From folders to a drafter and back: a run that is stopped goes on bit for bit, and the drafter
// that comes out decodes losslessly.
#include "jobs/training.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "decode/proposers.h"
#include "draft/zlab.h"
#include "jobs/capture.h"
#include "jobs/fixtures.h"
#include "support/temp_folder.h"

namespace dflash::jobs {
namespace {

using testing::TempFolder;

TrainingOptions options_for(const TempFolder& folder, const std::string& run) {
  TrainingOptions options;
  options.dataset = folder / "dataset";
  options.out = folder / run;
  options.drafter.num_layers = 1;
  options.drafter.block_size = 4;
  options.drafter.taps = {0, 1};
  options.drafter.mask_id = 95;
  options.train.total_steps = 6;
  options.train.anchors_per_step = 8;
  options.train.save_every = 3;
  options.train.validate_every = 0;
  return options;
}

TEST(Training, StoppedRunGoesOnBitForBit) {  // R-CK-1
  const Model model = tiny_model();
  TempFolder folder;
  data::save_dataset(folder / "dataset", tiny_dataset(12));
  const auto whole = train_drafter(model, options_for(folder, "whole"), {});
  EXPECT_EQ(whole.steps, 6);
  auto options = options_for(folder, "parts");
  const auto all = train_drafter(model, options, {});
  std::filesystem::remove_all(all.last_checkpoint);  // as if it had been killed after step 3
  options.resume = true;
  const auto resumed = train_drafter(model, options, {});
  EXPECT_EQ(resumed.last.step, 6);
  const auto a = draft::load_zlab(whole.last_checkpoint / "model", nn::Compute::kF32);
  const auto b = draft::load_zlab(resumed.last_checkpoint / "model", nn::Compute::kF32);
  for (const auto& [name, tensor] : a->parameters()) {
    EXPECT_TRUE(at::equal(tensor, b->parameters().at(name))) << name;
  }
}

TEST(Training, OwnTablesStayTheDraftersThroughTrainingAndResume) {  // R-CK-6
  const Model model = tiny_model();
  TempFolder folder;
  data::save_dataset(folder / "dataset", tiny_dataset(12));
  auto options = options_for(folder, "first");
  const auto first = train_drafter(model, options, {});
  auto given = draft::load_zlab(first.last_checkpoint / "model", nn::Compute::kF32);
  const at::Tensor head_VD = model.target->head().linear.weight.roll({3}, {0}).clone();
  given->set_own_tables({model.target->table().weight_VD * 0.5, head_VD});
  draft::save_zlab(*given, folder / "own", nn::Compute::kF32);
  options = options_for(folder, "second");
  options.init_from = folder / "own";
  const auto trained = train_drafter(model, options, {});
  const auto saved = draft::load_zlab(trained.last_checkpoint / "model", nn::Compute::kF32);
  EXPECT_TRUE(at::equal(saved->own_tables().head_VD, head_VD));
  EXPECT_FALSE(at::equal(saved->parameters().at("fc.weight"), given->parameters().at("fc.weight")));
  std::filesystem::remove_all(trained.last_checkpoint);
  options.resume = true;
  const auto resumed = train_drafter(model, options, {});
  const auto again = draft::load_zlab(resumed.last_checkpoint / "model", nn::Compute::kF32);
  EXPECT_TRUE(at::equal(again->own_tables().head_VD, head_VD));
  EXPECT_TRUE(at::equal(again->parameters().at("fc.weight"), saved->parameters().at("fc.weight")));
  options.resume = false;
  options.out = folder / "soft";
  options.train.loss.terms = train::parse_loss("kl");
  const auto soft = train_drafter(model, options, {});  // taught by the target's own head
  EXPECT_EQ(soft.steps, 6);
  const auto taught = draft::load_zlab(soft.last_checkpoint / "model", nn::Compute::kF32);
  EXPECT_TRUE(at::equal(taught->own_tables().head_VD, head_VD));
  EXPECT_FALSE(
      at::equal(taught->parameters().at("fc.weight"), saved->parameters().at("fc.weight")));
}

TEST(Training, FeaturesOfAnotherDatasetAreRefused) {
  const Model model = tiny_model();
  TempFolder folder;
  capture(*model.target, tiny_dataset(12), {.out = folder / "features", .taps = {0, 1}});
  auto options = options_for(folder, "run");
  options.features = folder / "features";
  auto changed = tiny_dataset(12);
  changed.ids[changed.offsets[11]] += 1;  // the last document, which a first step may never meet
  data::save_dataset(folder / "dataset", changed);
  EXPECT_THAT(testing::error_of<Error>([&] { train_drafter(model, options, {}); }),
              ::testing::HasSubstr("document 11"));
  // Features do not depend on the mask, and documents that came later have none.
  auto grown = tiny_dataset(13);
  grown.loss_mask[5] = 0;
  data::save_dataset(folder / "dataset", grown);
  EXPECT_EQ(train_drafter(model, options, {}).steps, 6);
}

TEST(Training, DrafterDecodesLosslessly) {
  const Model model = tiny_model();
  TempFolder folder;
  data::save_dataset(folder / "dataset", tiny_dataset(12));
  const auto result = train_drafter(model, options_for(folder, "run"), {});
  auto drafter = draft::load_zlab(result.last_checkpoint / "model", nn::Compute::kF32);
  drafter->pack();
  const auto proposer = decode::make_draft_proposer(drafter, *model.target);
  decode::Request request{.prompt = {3, 1, 4, 1, 5}, .max_new_tokens = 40};
  const auto plain = decode::generate(*model.target, nullptr, {request});
  const auto drafted = decode::generate(*model.target, proposer.get(), {request});
  EXPECT_EQ(plain.results[0].tokens, drafted.results[0].tokens);
  EXPECT_GE(drafted.results[0].counts.tau(), 1.0);
}

TEST(Training, FeaturesMustFitTargetAndDrafter) {
  const Model model = tiny_model();
  TempFolder folder;
  const auto dataset = tiny_dataset(6);
  data::save_dataset(folder / "dataset", dataset);
  CaptureOptions capturing;
  capturing.out = folder / "features";
  capturing.taps = {1};
  capture(*model.target, dataset, capturing);
  auto options = options_for(folder, "run");
  options.features = capturing.out;
  const auto error = [&](const Model& used) {
    return testing::error_of<Error>([&] { train_drafter(used, options, {}); });
  };
  EXPECT_NE(error(model).find("taps: expected"), std::string::npos) << error(model);
  options.drafter.taps = {1};
  Model other = tiny_model();
  other.target = target::make_random_llama(target::tiny_llama_config(), /*seed=*/8);
  EXPECT_NE(error(other).find("fingerprint"), std::string::npos) << error(other);
  EXPECT_NO_THROW(train_drafter(model, options, {}));
}

TEST(Training, MaskIdIsResolvedOnceAndChecked) {
  const Model model = tiny_model();
  EXPECT_EQ(resolve_mask_id(model, 42), 42);
  EXPECT_THROW(resolve_mask_id(model, 96), Error) << "past the embedding (R-TOK-6)";
  EXPECT_THROW(resolve_mask_id(model, 1), Error) << "the end of turn";
  EXPECT_THROW(resolve_mask_id(model, *model.tokenizer->pad_id()), Error);
  EXPECT_THROW(resolve_mask_id(model, -1), Error) << "no unused token to be found";
}

}  // namespace
}  // namespace dflash::jobs
