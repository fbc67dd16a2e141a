// The short form of `make prove`: small drafters trained for seconds, each under one deliberate
// deviation; the explanation names it, and accuses none that was trained as declared.
#include "doctor/explain.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "doctor/world.h"
#include "support/temp_folder.h"

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

  std::shared_ptr<draft::Drafter> start_packed() {
    start_->pack();
    return start_;
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

// Asked for between the passes of every decoding: the answers, and those that confirm.
TEST_F(ExplainTest, StopsWheneverItIsAskedTo) {
  const auto prompts = small_prompts(6);
  int64_t asked = 0, last = -1;
  ExplainOptions options{.evidence = {.max_new_tokens = 12}, .confirm = 1};
  options.evidence.should_stop = [&] { return ++asked == last; };
  explain(*target_, *start_packed(), prompts, options);
  const int64_t all = asked;
  options.confirm = 0;
  asked = 0;
  explain(*target_, *start_packed(), prompts, options);
  const int64_t answers = asked;
  ASSERT_GT(all, answers + 1) << "confirming does not ask";
  options.confirm = 1;
  for (const int64_t at : {int64_t{2}, answers + 2, all - 1}) {
    asked = 0;
    last = at;
    EXPECT_NE(testing::error_of<Error>([&] {
                explain(*target_, *start_packed(), prompts, options);
              }).find("stopped before it was done"),
              std::string::npos)
        << at << " of " << all;
  }
}

TEST(Evidence, TheMiddleOfAnAnswerIsItsOwn) {
  data::Dataset dataset;
  dataset.add({.ids = {1, 2, 3, 4, 5, 6, 7, 8, 9}, .loss_mask = {0, 0, 0, 1, 1, 1, 1, 1, 1}});
  dataset.add({.ids = {1, 2}, .loss_mask = {0, 1}});
  dataset.add({.ids = {1, 2}, .loss_mask = {0, 0}});
  EXPECT_EQ(middle_of_answer(dataset, 0), 6);
  EXPECT_EQ(middle_of_answer(dataset, 1), 1);
  EXPECT_THROW(middle_of_answer(dataset, 2), Error);
}

// Trained as declared, on answers to the same questions put in other words.
TEST_F(ExplainTest, NamesTheTextsThatItWasTrainedOn) {
  const auto asked = small_prompts(64);
  auto otherwise = asked;
  for (auto& ids : otherwise) ids.insert(ids.begin(), {89, 88, 89});
  const auto drafter = train_under(declared_, *start_, dataset_, target_, options_);
  const ExplainOptions options{.evidence = {.max_new_tokens = 24}, .confirm = 0};

  ExplainOptions served_otherwise = options;
  served_otherwise.prompt_arms = {{"asked", "as they were asked", asked}};
  const Explanation named = explain(*target_, *drafter, otherwise, served_otherwise);
  ASSERT_TRUE(named.verdict.has_value()) << named.to_table();
  EXPECT_EQ(named.arms[*named.verdict].name, "asked") << named.to_table();

  ExplainOptions served_as_trained = options;
  served_as_trained.prompt_arms = {{"otherwise", "put in other words", otherwise}};
  const Explanation right = explain(*target_, *drafter, asked, served_as_trained);
  EXPECT_FALSE(right.verdict.has_value()) << right.to_table();
}

}  // namespace
}  // namespace dflash::doctor
