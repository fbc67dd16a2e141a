// Datasets and features that are not what training thinks they are.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "data/word_tokenizer.h"
#include "doctor/dataset_check.h"
#include "doctor/feature_check.h"
#include "doctor/world.h"
#include "io/safetensors.h"
#include "jobs/capture.h"
#include "support/temp_folder.h"

namespace dflash::doctor {
namespace {

const Finding& finding_of(const Findings& findings, const std::string& subject) {
  for (const Finding& finding : findings.all()) {
    if (finding.subject == subject) return finding;
  }
  throw Error("no finding about " + subject + "\n" + findings.to_text());
}

/// start w5 w6 end | start w7.. end, the second part supervised with its end token.
data::Document document(int64_t number) {
  data::Document document{.ids = {0, 5, 6 + number, 1, 0}, .loss_mask = {0, 0, 0, 0, 0}};
  for (int64_t t = 0; t < 8; ++t) document.ids.push_back(10 + (number * 7 + t * t) % 60);
  document.ids.push_back(1);
  document.loss_mask.resize(document.ids.size(), 1);
  return document;
}

data::Dataset right_dataset() {
  data::Dataset dataset;
  for (int64_t d = 0; d < 6; ++d) dataset.add(document(d));
  return dataset;
}

TEST(DatasetCheck, NothingIsWrongWithARightOne) {
  const Findings findings = check_dataset(right_dataset(), WordTokenizer(), nullptr);
  EXPECT_FALSE(findings.any_wrong()) << findings.to_text();
  EXPECT_EQ(findings.all().size(), 7U);
}

TEST(DatasetCheck, NamesWrongMasks) {
  data::Dataset prompts_too;
  for (int64_t d = 0; d < 6; ++d) {
    data::Document all = document(d);
    all.loss_mask.assign(all.ids.size(), 1);
    prompts_too.add(all);
  }
  const Findings findings = check_dataset(prompts_too, WordTokenizer(), nullptr);
  EXPECT_EQ(finding_of(findings, "supervised tokens").level, Level::kWrong);
  EXPECT_EQ(finding_of(findings, "masks").level, Level::kWrong);
  EXPECT_NE(finding_of(findings, "masks").text.find("<|im_start|>"), std::string::npos);
}

// A target may say a special token itself, once in a while.
TEST(DatasetCheck, RareSpecialTokensInAnswersAreNotAWrongMask) {
  data::Dataset dataset;
  for (int64_t d = 0; d < 40; ++d) {
    data::Document one = document(d);
    if (d == 7) {
      one.ids.insert(one.ids.end() - 1, 0);
      one.loss_mask.insert(one.loss_mask.end() - 1, 1);
    }
    dataset.add(one);
  }
  const Findings findings = check_dataset(dataset, WordTokenizer(), nullptr);
  EXPECT_EQ(finding_of(findings, "masks").level, Level::kNote) << findings.to_text();
}

TEST(DatasetCheck, NamesDoubledBeginsMissingEndsLoopsAndDoubles) {
  data::Dataset dataset;
  for (int64_t d = 0; d < 6; ++d) {
    data::Document odd{.ids = {0, 0, 5 + d, 1, 0}, .loss_mask = {0, 0, 0, 0, 0}};
    for (int64_t t = 0; t < 60; ++t) odd.ids.push_back(10 + t % 2);
    odd.loss_mask.resize(odd.ids.size(), 1);
    dataset.add(odd);
  }
  dataset.add(document(1));
  dataset.add(document(1));
  const Findings findings = check_dataset(dataset, WordTokenizer(), nullptr);
  EXPECT_EQ(finding_of(findings, "begin tokens").level, Level::kWrong);
  EXPECT_EQ(finding_of(findings, "end tokens").level, Level::kNote);
  EXPECT_EQ(finding_of(findings, "loops").level, Level::kWrong);
  EXPECT_EQ(finding_of(findings, "doubles").level, Level::kNote);
}

TEST(DatasetCheck, TellsOwnAnswersFromOthers) {
  const auto target = small_target();
  const auto own = own_answers(*target, small_prompts(4), {.max_new_tokens = 20});
  const WordTokenizer tokenizer;
  EXPECT_EQ(finding_of(check_dataset(own, tokenizer, target.get()), "own answers").level,
            Level::kOk);
  EXPECT_EQ(
      finding_of(check_dataset(right_dataset(), tokenizer, target.get()), "own answers").level,
      Level::kWrong);
}

/// The target with one mistake in its teacher rows.
class WrongTeacher final : public target::Target {
 public:
  WrongTeacher(std::shared_ptr<const target::Target> inner, bool twice)
      : inner_(std::move(inner)), twice_(twice) {
    config_ = inner_->config();
    table_ = inner_->table();
    head_ = inner_->head();
    fingerprint_ = inner_->fingerprint();
  }
  std::unique_ptr<target::State> new_state() const override { return inner_->new_state(); }
  target::Hidden forward(const target::Rows& rows,
                         const target::ForwardOptions& options) const override {
    target::ForwardOptions more = options;
    more.taps.push_back(config_.num_layers - 2);
    target::Hidden hidden = inner_->forward(rows, more);
    const int64_t width = config_.hidden_size, taps = hidden.taps_RF.size(1) - width;
    if (!twice_) hidden.last_RD = hidden.taps_RF.narrow(1, taps, width).contiguous();
    hidden.taps_RF = hidden.taps_RF.narrow(1, 0, taps).contiguous();
    return hidden;
  }
  at::Tensor final_norm(const at::Tensor& last_RD) const override {
    const at::Tensor once = inner_->final_norm(last_RD);
    return twice_ ? inner_->final_norm(once) : once;
  }
  std::vector<std::pair<std::string, at::Tensor>> layer_weights(int64_t layer) const override {
    return inner_->layer_weights(layer);
  }

 private:
  std::shared_ptr<const target::Target> inner_;
  bool twice_;
};

class FeatureCheck : public ::testing::Test {
 protected:
  /// Changes one row of the stored f32 taps of a capture's first shard, on disk.
  static void at_tap_row(const std::filesystem::path& capture, int64_t row,
                         const std::function<float(float&)>& change) {
    const auto shard = capture / "part-00000.safetensors";
    const auto file = io::Checkpoint::open(shard);
    const io::TensorView& taps = file->get("taps");
    const auto width = taps.shape[1];
    const auto whole = std::filesystem::file_size(shard);
    const std::string bytes = read_text(shard, whole);
    const auto begin = bytes.find(std::string(reinterpret_cast<const char*>(taps.bytes.data()),
                                              static_cast<size_t>(width) * 4));
    std::fstream out(shard, std::ios::in | std::ios::out | std::ios::binary);
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      float value;
      std::memcpy(&value, taps.bytes.data() + i * 4, 4);
      value = change(value);
      out.seekp(static_cast<std::streamoff>(begin) + i * 4);
      out.write(reinterpret_cast<const char*>(&value), 4);
    }
  }

  data::FeatureReader captured(const target::Target& target, const std::string& name, bool f32) {
    jobs::capture(target, dataset_, {.out = folder_ / name, .taps = {0, 2, 4}, .f32 = f32});
    return data::FeatureReader(folder_ / name);
  }

  testing::TempFolder folder_;
  std::shared_ptr<const target::Target> target_ = small_target();
  data::Dataset dataset_ = own_answers(*target_, small_prompts(6), {.max_new_tokens = 20});
};

TEST_F(FeatureCheck, RightFeaturesAreRight) {
  const auto features = captured(*target_, "right", true);
  const Findings findings = check_features_of(features, dataset_, *target_);
  EXPECT_FALSE(findings.any_wrong()) << findings.to_text();
  EXPECT_EQ(findings.all().size(), 5U);  // three taps, NaN anywhere, teacher rows
}

TEST_F(FeatureCheck, NamesTeacherRowsOfAnEarlierBlock) {
  const WrongTeacher wrong(target_, /*twice=*/false);
  const Findings findings = check_features_of(captured(wrong, "early", true), dataset_, *target_);
  const Finding& teacher = finding_of(findings, "teacher rows");
  EXPECT_EQ(teacher.level, Level::kWrong);
  EXPECT_NE(teacher.text.find("the output of block 4 of 6, not the last"), std::string::npos)
      << teacher.text;
}

TEST_F(FeatureCheck, NamesTapsThatAreNotTheTargets) {
  const auto other = small_target(/*seed=*/8);
  const auto features = captured(*other, "other", true);
  const Findings findings = check_features_of(features, dataset_, *target_);
  EXPECT_EQ(finding_of(findings, "tap after block 0").level, Level::kWrong);
}

TEST_F(FeatureCheck, ComparesTwoCaptures) {
  const auto f32 = captured(*target_, "f32", true), bf16 = captured(*target_, "bf16", false);
  const auto drafter = draft::small_drafter(spec_for(*target_, {{}, {}}), nn::Compute::kF32);
  const auto same = compare_features(bf16, f32, dataset_, drafter.get(), target_.get());
  EXPECT_EQ(same.documents, 6);
  EXPECT_LT(same.taps[0].relative, 4e-3);  // half a unit of bf16's 8 bits
  EXPECT_GT(same.taps[0].relative, 1e-4);
  EXPECT_EQ(same.argmax_agreement, 1.0);
  EXPECT_EQ(same.sentence(), "they agree in every tap and in the argmax");
  EXPECT_TRUE(same.agrees());
  ASSERT_EQ(same.score.size(), 2U);
  EXPECT_NEAR(same.score[0], same.score[1], 0.01);

  const WrongTeacher wrong(target_, /*twice=*/false);
  const auto early = captured(wrong, "early", true);
  const auto taught = compare_features(early, f32, dataset_, nullptr, nullptr);
  EXPECT_LT(taught.argmax_agreement, 0.9);
  EXPECT_FALSE(taught.agrees());
  EXPECT_NE(taught.sentence().find("teacher rows"), std::string::npos) << taught.sentence();
}

// What a mean over all rows would hide.
TEST_F(FeatureCheck, OneDamagedRowIsFound) {
  const auto right = captured(*target_, "right", true);
  std::filesystem::copy(folder_ / "right", folder_ / "hurt");
  at_tap_row(folder_ / "hurt", 50, [](float&) { return 0.0f; });
  const data::FeatureReader hurt(folder_ / "hurt");
  const Findings findings = check_features_of(hurt, dataset_, *target_);
  EXPECT_EQ(finding_of(findings, "tap after block 0").level, Level::kWrong) << findings.to_text();
  EXPECT_FALSE(compare_features(hurt, right, dataset_, nullptr, nullptr).agrees());
}

// bf16's bound would let two percent pass.
TEST_F(FeatureCheck, F32CapturesAreComparedSharply) {
  const auto right = captured(*target_, "right", true);
  std::filesystem::copy(folder_ / "right", folder_ / "noisy");
  for (int64_t row = 0; row < 100; ++row) {
    at_tap_row(folder_ / "noisy", row, [](float& value) { return value * 1.02f; });
  }
  const data::FeatureReader noisy(folder_ / "noisy");
  EXPECT_TRUE(check_features_of(noisy, dataset_, *target_).any_wrong());
  EXPECT_FALSE(compare_features(noisy, right, dataset_, nullptr, nullptr).agrees());
}

TEST_F(FeatureCheck, AnArgmaxThatIsNoIdIsRefused) {
  const auto features = captured(*target_, "right", true);
  features.check_vocabulary(target_->config().vocab_size);
  EXPECT_NE(testing::error_of<Error>([&] { features.check_vocabulary(1); }).find("argmax"),
            std::string::npos);
}

}  // namespace
}  // namespace dflash::doctor
