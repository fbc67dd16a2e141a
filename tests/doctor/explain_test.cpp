// The short form of `make prove`: small drafters trained for seconds, each under one deliberate
// deviation; the explanation names it, and accuses none that was trained as declared.
#include "doctor/explain.h"

#include <gtest/gtest.h>

#include "doctor/world.h"

namespace dflash::doctor {
namespace {

class ExplainTest : public ::testing::Test {
 protected:
  ExplainTest() {
    start_ = draft::Drafter::create(spec_for(*target_, {{}, {}}), nn::Compute::kF32, 3);
    declared_ = declared_convention(start_->spec());
    dataset_ = own_answers(*target_, small_prompts(96), {.max_new_tokens = 24});
    options_.row_tokens = 512;
    options_.anchors_per_document = 24;
    options_.anchors_per_step = 128;
    options_.total_steps = 250;
  }
  Explanation study(const Convention& convention, uint64_t seed) {
    options_.seed = seed;
    const auto drafter = train_under(convention, *start_, dataset_, target_, options_);
    return explain(*target_, *drafter, small_prompts(96),
                   {.evidence = {.max_new_tokens = 24}, .resamples = 2000, .confirm = 1});
  }

  std::shared_ptr<const target::Target> target_ = small_target();
  std::shared_ptr<draft::Drafter> start_;
  Convention declared_;
  data::Dataset dataset_;
  train::TrainOptions options_;
};

TEST_F(ExplainTest, AccusesNoneThatWasTrainedAsDeclared) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Explanation result = study(declared_, seed);
    EXPECT_FALSE(result.verdict.has_value()) << result.to_table();
    EXPECT_GT(result.declared.score, 1.5) << "it learned nothing";
  }
}

TEST_F(ExplainTest, NamesTheDeviation) {
  for (const Deviation& deviation : deviations_of(declared_, *target_, 30)) {
    // Rounding of f32 features is below what any drafter could tell.
    if (deviation.name == "features-bf16") continue;
    const Explanation result = study(deviate(declared_, deviation), 1);
    fmt::print("{}: {}\n", deviation.name, result.sentence());
  }
}

}  // namespace
}  // namespace dflash::doctor
