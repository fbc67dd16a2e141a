// What only the run's record can say.
#include <gtest/gtest.h>

#include "base/error.h"
#include "doctor/record_check.h"
#include "doctor/world.h"
#include "draft/zlab.h"
#include "support/temp_folder.h"

namespace dflash::doctor {
namespace {

Json record_of(const draft::DraftSpec& spec, const train::TrainOptions& options) {
  return {{"format", "dflash-run"},
          {"version", 1},
          {"header", {{"options", options.to_json()}}},
          {"config", {{"drafter", draft::zlab_config(spec, nn::Compute::kF32)}}}};
}

Level level_of(const Findings& findings, const std::string& subject) {
  for (const Finding& finding : findings.all()) {
    if (finding.subject == subject) return finding.level;
  }
  ADD_FAILURE() << "nothing about " << subject;
  return Level::kOk;
}

TEST(Record, GammaFourIsTheDefaultAndSevenForBlocksOfEightIsSaid) {
  const draft::DraftSpec spec = spec_for(*small_target(), {{}, {}});
  train::TrainOptions options;
  EXPECT_EQ(options.loss.gamma, 4.0);
  EXPECT_EQ(level_of(check_record(record_of(spec, options), spec), "slot weights"), Level::kOk);
  options.loss.gamma = 7;
  EXPECT_EQ(level_of(check_record(record_of(spec, options), spec), "slot weights"), Level::kNote);
  draft::DraftSpec wide = spec;
  wide.rule.block_size = 16;  // the paper's own
  EXPECT_EQ(level_of(check_record(record_of(wide, options), wide), "slot weights"), Level::kOk);
}

TEST(Record, NoiseIsSaid) {
  const draft::DraftSpec spec = spec_for(*small_target(), {{}, {}});
  train::TrainOptions options;
  options.noise = {.kind = train::NoiseKind::kGaussian, .scale = 0.1};
  EXPECT_EQ(level_of(check_record(record_of(spec, options), spec), "feature noise"), Level::kNote);
}

TEST(Record, AConfigThatWasChangedAfterwardsIsWrong) {
  const draft::DraftSpec begun = spec_for(*small_target(), {{.window = 8}, {}});
  draft::DraftSpec now = begun;
  now.rule.layers[0].window = 0;
  now.taps = {0, 2, 5};
  const Findings findings = check_record(record_of(begun, {}), now);
  EXPECT_EQ(level_of(findings, "layer rule"), Level::kWrong);
  EXPECT_EQ(level_of(findings, "taps"), Level::kWrong);
}

TEST(Record, WhatNoRunCanHaveWrittenIsWrong) {
  const draft::DraftSpec spec = spec_for(*small_target(), {{}, {}});
  const Json right = record_of(spec, {});
  const auto level_with = [&](const char* key, const Json& value, const char* subject) {
    Json record = right;
    record["header"]["options"]["loss"][key] = value;
    return level_of(check_record(record, spec), subject);
  };
  EXPECT_EQ(level_with("labels", "foo", "labels"), Level::kWrong);
  EXPECT_EQ(level_with("terms", Json::array(), "loss"), Level::kWrong);
  EXPECT_EQ(level_with("terms", {{{"loss", "foo"}, {"weight", 1.0}}}, "loss"), Level::kWrong);
  EXPECT_EQ(level_with("terms", {{{"loss", "ce"}, {"weight", -1.0}}}, "loss"), Level::kWrong);
  EXPECT_EQ(level_with("slot_weights", "foo", "slot weights"), Level::kWrong);
  EXPECT_EQ(level_with("gamma", -4.0, "slot weights"), Level::kWrong);
}

TEST(Record, DamageIsAnErrorThatNamesTheFile) {
  const draft::DraftSpec spec = spec_for(*small_target(), {{}, {}});
  for (const char* damage :
       {R"({"header": null})", R"({"version": 9})", R"({"format": 3})",
        R"({"header": {"options": null}})", R"({"header": {"options": {"loss": 3}}})"}) {
    Json record = record_of(spec, {});
    record.merge_patch(Json::parse(damage));
    EXPECT_NE(testing::error_of<Error>([&] { check_record(record, spec); }).find("run.json"),
              std::string::npos)
        << damage;
  }
}

TEST(Record, AnotherTargetIsWrong) {
  draft::DraftSpec spec = spec_for(*small_target(), {{}, {}});
  spec.target_fingerprint = "one";
  Json record = record_of(spec, {});
  record["config"]["target_fingerprint"] = "other";
  EXPECT_EQ(level_of(check_record(record, spec), "target"), Level::kWrong);
}

TEST(Record, IsFoundFromTheModelFolder) {
  const testing::TempFolder folder;
  const auto model = folder / "run" / "checkpoints" / "step-000004" / "model";
  std::filesystem::create_directories(model);
  EXPECT_FALSE(find_record(model).has_value());
  testing::write_file(folder / "run" / "run.json", "{}");
  EXPECT_EQ(find_record(model)->filename(), "run.json");
  EXPECT_EQ(find_record(folder / "run")->filename(), "run.json");
}

}  // namespace
}  // namespace dflash::doctor
