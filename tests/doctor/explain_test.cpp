// The short form of `make prove`: small drafters trained for seconds, each under one deliberate
// deviation; the explanation names it, and accuses none that was trained as declared.
#include "doctor/explain.h"

#include <gtest/gtest.h>

#include <set>

#include "doctor/world.h"

namespace dflash::doctor {
namespace {

class ExplainTest : public ::testing::Test {
 protected:
  ExplainTest() {
    start_ = draft::Drafter::create(spec_for(*target_, {{}, {}}), nn::Compute::kF32, 3);
    declared_ = declared_convention(start_->spec());
    dataset_ = own_answers(*target_, small_prompts(64), {.max_new_tokens = 24});
    options_.row_tokens = 512;
    options_.anchors_per_document = 24;
    options_.anchors_per_step = 128;
    options_.total_steps = 120;
  }
  Explanation study(const Convention& convention, uint64_t seed) {
    options_.seed = seed;
    const auto drafter = train_under(convention, *start_, dataset_, target_, options_);
    return explain(*target_, *drafter, small_prompts(64),
                   {.evidence = {.max_new_tokens = 24}, .confirm = 1});
  }

  std::shared_ptr<const target::Target> target_ = small_target();
  std::shared_ptr<draft::Drafter> start_;
  Convention declared_;
  data::Dataset dataset_;
  train::TrainOptions options_;
};

TEST_F(ExplainTest, AccusesNoneThatWasTrainedAsDeclared) {
  for (const uint64_t seed : {1, 2}) {
    const Explanation result = study(declared_, seed);
    EXPECT_FALSE(result.verdict.has_value()) << result.to_table();
    EXPECT_GT(result.declared.score, 1.3) << "it learned nothing";
  }
}

TEST_F(ExplainTest, NamesTheDeviation) {
  const std::set<std::string> mistakes = {"taps-reversed", "labels-anchor-first", "mask-id-0",
                                          "tap-4-zeroed"};
  size_t tried = 0;
  for (const Deviation& deviation : deviations_of(declared_, *target_, 30)) {
    if (!mistakes.contains(deviation.name)) continue;
    ++tried;
    const Explanation result = study(deviate(declared_, deviation), 1);
    ASSERT_TRUE(result.verdict.has_value()) << deviation.name << "\n" << result.to_table();
    EXPECT_EQ(result.arms[*result.verdict].name, deviation.name) << result.to_table();
    // Real decoding says so too.
    ASSERT_TRUE(result.arms[0].tau && result.declared.tau);
    EXPECT_GT(*result.arms[0].tau, *result.declared.tau);
  }
  EXPECT_EQ(tried, mistakes.size());
}

}  // namespace
}  // namespace dflash::doctor
