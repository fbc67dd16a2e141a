// Traces of programs with one joint off: the first stage that differs, and the mistake by name.
#include "doctor/trace.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "doctor/world.h"
#include "nn/tensor_io.h"
#include "support/temp_folder.h"

namespace dflash::doctor {
namespace {

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() {
    drafter_ = draft::small_drafter(spec_for(*target_, {{}, {}}), nn::Compute::kF32);
    declared_ = declared_convention(drafter_->spec());
    const auto dataset = own_answers(*target_, small_prompts(1), {.max_new_tokens = 24});
    const auto ids = dataset.document_ids(0);
    ids_.assign(ids.begin(), ids.end());
  }
  /// What a program with this convention would have recorded, through a file.
  Trace recorded(const Convention& convention) const {
    Trace trace{.program = "theirs", .dtype = "f32", .ids = ids_, .anchor = 17};
    trace.stages = trace_stages(convention, *drafter_, target_, ids_, trace.anchor);
    write_trace(folder_.path() / "trace.safetensors", trace, convention);
    return read_trace(folder_.path() / "trace.safetensors");
  }

  testing::TempFolder folder_;
  std::shared_ptr<const target::Target> target_ = small_target();
  std::shared_ptr<draft::Drafter> drafter_;
  Convention declared_;
  std::vector<int64_t> ids_;
};

TEST_F(TraceTest, OurOwnAgrees) {
  const auto report = compare_trace(recorded(declared_), *drafter_, target_);
  EXPECT_TRUE(report.agrees()) << report.to_text();
  EXPECT_TRUE(report.findings.empty());
}

// Left out without a word it would pass for one that agrees.
TEST_F(TraceTest, AnUnknownStageIsAnError) {
  Trace trace = recorded(declared_);
  trace.stages.add("layers.0.K", trace.stages.all().front().second);
  EXPECT_NE(testing::error_of<Error>([&] {
              compare_trace(trace, *drafter_, target_);
            }).find("unknown stage layers.0.K"),
            std::string::npos);
}

TEST_F(TraceTest, EveryDeviationIsNamed) {
  int tried = 0;
  for (const Deviation& deviation : deviations_of(declared_, *target_, 24)) {
    const auto report = compare_trace(recorded(deviate(declared_, deviation)), *drafter_, target_);
    EXPECT_FALSE(report.agrees()) << deviation.name;
    ASSERT_EQ(report.explained.size(), 1U) << deviation.name << "\n" << report.to_text();
    EXPECT_NE(report.explained[0].find("(" + deviation.name + ")"), std::string::npos)
        << report.explained[0];
    ++tried;
  }
  EXPECT_GE(tried, 20);
}

TEST_F(TraceTest, FindingsSpeakInWords) {
  Convention wrong = declared_;
  for (auto& layer : wrong.spec.rule.layers) layer.context_shift = 1;
  wrong.taps[1].layer = 3;
  wrong.taps[2].zeroed = true;
  const auto report = compare_trace(recorded(wrong), *drafter_, target_);
  const std::string text = report.to_text();
  EXPECT_NE(text.find("one row more (18 for an anchor at 17): the anchor's own feature is visible"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("tap 2 of 3 is the output of block 3; the config declares the output of "
                      "block 2"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("tap 3 of 3 is zeros"), std::string::npos) << text;
  EXPECT_TRUE(report.explained.empty());  // three mistakes at once are no single one
}

TEST_F(TraceTest, PartOfTheStagesIsEnough) {
  Trace trace = recorded(declared_);
  Stages some;
  for (const char* name : {"taps", "hidden"}) some.add(name, *trace.stages.find(name));
  trace.stages = some;
  const auto report = compare_trace(trace, *drafter_, target_);
  EXPECT_TRUE(report.agrees());
  EXPECT_EQ(report.stages.size(), 2U);
}

TEST_F(TraceTest, AWholeHeadIsComparedOnTheDraftVocabulary) {
  const Trace whole = recorded(declared_);
  draft::DraftSpec spec = drafter_->spec();
  for (int64_t id = 0; id < spec.vocab_size; id += 3) spec.draft_ids.push_back(id);
  const auto reduced =
      draft::Drafter::from_weights(spec, nn::Compute::kF32, drafter_->parameters());
  const auto report = compare_trace(whole, *reduced, target_);
  EXPECT_TRUE(report.agrees()) << report.to_text();
  EXPECT_EQ(report.findings.size(), 1U);
}

TEST_F(TraceTest, OtherFilesAreRefused) {
  const auto path = folder_.path() / "model.safetensors";
  nn::save_tensors(path, {{"ids", at::ones({3})}});
  try {
    read_trace(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("expected a trace"), std::string::npos);
  }
}

}  // namespace
}  // namespace dflash::doctor
