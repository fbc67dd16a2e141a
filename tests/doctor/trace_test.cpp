// Traces of programs with one joint off: the first stage that differs, and the mistake by name.
#include "doctor/trace.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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

  /// The same with another value of one stage.
  static Trace with(const Trace& trace, const std::string& stage, const at::Tensor& other) {
    Trace changed = trace;
    changed.stages = Stages();
    for (const auto& [name, value] : trace.stages.all()) {
      changed.stages.add(name, name == stage ? other : value);
    }
    return changed;
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

// A wrong argmax, slot or id mapping behind logits that are right.
TEST_F(TraceTest, ProposalsMustBeTheLogitsOwn) {
  const Trace right = recorded(declared_);
  const at::Tensor proposals = right.stages.find("proposals")->clone();
  for (int64_t slot = 0; slot < proposals.numel(); ++slot) {
    const at::Tensor other = proposals.clone();
    other[slot] = (other[slot] + 1) % 96;
    const auto report = compare_trace(with(right, "proposals", other), *drafter_, target_);
    EXPECT_FALSE(report.agrees()) << "slot " << slot;
  }
  const at::Tensor foreign = at::full_like(proposals, 1'000'000);
  EXPECT_FALSE(compare_trace(with(right, "proposals", foreign), *drafter_, target_).agrees());
}

// Files come from strangers: logits of any shape beside other proposals.
TEST_F(TraceTest, LogitsOfOtherShapesAreADifferenceAndNoMore) {
  const Trace right = recorded(declared_);
  const at::Tensor proposals = right.stages.find("proposals")->add(1);
  const at::Tensor logits = *right.stages.find("logits");
  for (const at::Tensor& odd :
       {at::zeros({1, 3'000'000}), logits.narrow(0, 0, 1), logits.narrow(0, 0, 0),
        logits.narrow(1, 0, 0), at::zeros({}), logits.unsqueeze(0), logits.flatten()}) {
    const Trace changed = with(with(right, "logits", odd), "proposals", proposals);
    EXPECT_FALSE(compare_trace(changed, *drafter_, target_).agrees()) << odd.sizes();
  }
}

TEST_F(TraceTest, TapsThatAreNotFiniteAreCalledSo) {
  const Trace right = recorded(declared_);
  const at::Tensor taps = right.stages.find("taps")->clone();
  taps.narrow(1, 0, 32).fill_(NAN);
  const std::string text = compare_trace(with(right, "taps", taps), *drafter_, target_).to_text();
  EXPECT_NE(text.find("tap 1 of 3 is not finite"), std::string::npos) << text;
}

TEST_F(TraceTest, LabelsOfUntrainedSlotsMaySayAnything) {
  const Trace right = recorded(declared_);
  const at::Tensor labels = right.stages.find("labels")->clone();
  ASSERT_EQ(right.stages.find("weights")->flatten()[0].item<double>(), 0.0);
  labels.flatten()[0] = -1;
  EXPECT_TRUE(compare_trace(with(right, "labels", labels), *drafter_, target_).agrees());
  labels.flatten()[1] += 1;  // this one is trained
  EXPECT_FALSE(compare_trace(with(right, "labels", labels), *drafter_, target_).agrees());
}

// No single deviation of the list, but each tap can be told from what stands there.
TEST_F(TraceTest, TapsInAnyOrderAreExplainedByTheirOwnNames) {
  Convention cycled = declared_;
  std::rotate(cycled.taps.begin(), cycled.taps.begin() + 1, cycled.taps.end());
  const auto report = compare_trace(recorded(cycled), *drafter_, target_);
  ASSERT_EQ(report.explained.size(), 1U) << report.to_text();
  EXPECT_EQ(report.explained[0], "the taps named above (taps)");
  EXPECT_EQ(report.findings.size(), 3U);
}

TEST_F(TraceTest, ABatchDimensionIsSaid) {
  const Trace right = recorded(declared_);
  const auto report = compare_trace(with(right, "taps", right.stages.find("taps")->unsqueeze(0)),
                                    *drafter_, target_);
  ASSERT_EQ(report.findings.size(), 1U) << report.to_text();
  EXPECT_NE(report.findings[0].find("taps: a batch dimension in front"), std::string::npos);
}

// Rows that are missing do not make taps of no layer.
TEST_F(TraceTest, AShortContextIsCountedAndNoMore) {
  const Trace right = recorded(declared_);
  const at::Tensor late = right.stages.find("taps")->narrow(0, 10, 7);
  const auto report = compare_trace(with(right, "taps", late), *drafter_, target_);
  ASSERT_EQ(report.findings.size(), 1U) << report.to_text();
  EXPECT_NE(report.findings[0].find("10 rows fewer"), std::string::npos) << report.findings[0];
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
