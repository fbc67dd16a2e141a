// capture: the rows of a live target, whatever the passes; resumable; bad documents are left out.
#include "jobs/capture.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/stop.h"
#include "data/features.h"
#include "jobs/fixtures.h"
#include "support/temp_folder.h"
#include "train/source.h"

namespace dflash::jobs {
namespace {

using testing::TempFolder;

CaptureOptions options_for(const TempFolder& folder) {
  CaptureOptions options;
  options.out = folder / "features";
  options.taps = {0, 1};
  options.f32 = true;
  return options;
}

/// Gives NaN features to documents that begin with one of the given ids.
class BrokenTarget : public target::Target {
 public:
  BrokenTarget(std::shared_ptr<const target::Target> inner, std::vector<int64_t> bad)
      : inner_(std::move(inner)), bad_(std::move(bad)) {
    config_ = inner_->config();
    table_ = inner_->table();
    head_ = inner_->head();
    fingerprint_ = "broken";
  }
  std::unique_ptr<target::State> new_state() const override { return inner_->new_state(); }
  target::Hidden forward(const target::Rows& rows,
                         const target::ForwardOptions& options) const override {
    auto hidden = inner_->forward(rows, options);
    for (const auto& segment : rows.segments) {
      const int64_t first = rows.ids_R[segment.first_row].item<int64_t>();
      if (std::find(bad_.begin(), bad_.end(), first) == bad_.end()) continue;
      hidden.taps_RF.narrow(0, segment.first_row, segment.num_rows)
          .fill_(std::numeric_limits<float>::quiet_NaN());
    }
    return hidden;
  }
  at::Tensor final_norm(const at::Tensor& last_RD) const override {
    return inner_->final_norm(last_RD);
  }
  std::vector<std::pair<std::string, at::Tensor>> layer_weights(int64_t layer) const override {
    return inner_->layer_weights(layer);
  }

 private:
  std::shared_ptr<const target::Target> inner_;
  std::vector<int64_t> bad_;
};

TEST(Capture, EqualsTheLiveTarget) {
  const Model model = tiny_model();
  const auto dataset = tiny_dataset(9);
  TempFolder folder;
  auto options = options_for(folder);
  options.rows_per_pass = 25;
  options.tokens_per_shard = 40;
  const auto report = capture(*model.target, dataset, options);
  EXPECT_EQ(report.documents, 9);
  EXPECT_EQ(report.tokens, dataset.num_tokens());
  auto reader = std::make_shared<data::FeatureReader>(options.out);
  auto files = train::file_source(dataset, reader);
  auto live = train::live_source(dataset, model.target, options.taps, /*with_last=*/false);
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    const auto length = static_cast<int64_t>(dataset.document_ids(d).size());
    const auto a = files->row({{.document = d, .length = length}});
    const auto b = live->row({{.document = d, .length = length}});
    EXPECT_TRUE(at::equal(a.taps_TF, b.taps_TF)) << "document " << d;
    EXPECT_EQ(a.argmax, b.argmax) << "document " << d;
  }
}

// In bf16 as well: the same ids give the same bits, whatever they are packed with, and stored rows
// are the live ones (rounded when the folder is bf16 and the target's residual is not).
TEST(Capture, Bf16EqualsTheLiveTarget) {
  const auto llama =
      target::make_random_llama(target::tiny_llama_config(), /*seed=*/7, nn::Compute::kBF16);
  const auto dataset = tiny_dataset(9);
  std::vector<data::PackedPlan::Piece> all;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    all.push_back({d, static_cast<int64_t>(dataset.document_ids(d).size())});
  }
  for (const bool f32 : {false, true}) {
    TempFolder folder;
    auto options = options_for(folder);
    options.f32 = f32;
    options.keep_last = true;
    options.rows_per_pass = 25;
    options.tokens_per_shard = 40;
    capture(*llama, dataset, options);
    const auto files =
        train::file_source(dataset, std::make_shared<data::FeatureReader>(options.out));
    const auto live = train::live_source(dataset, llama, options.taps, /*with_last=*/true);
    std::vector<std::vector<data::PackedPlan::Piece>> rows = {all};
    for (const auto& piece : all) rows.push_back({piece});
    for (const auto& row : rows) {
      const auto stored = files->row(row), now = live->row(row);
      const auto type = f32 ? at::kFloat : at::kBFloat16;
      EXPECT_EQ(stored.taps_TF.scalar_type(), type);
      EXPECT_TRUE(at::equal(stored.taps_TF, now.taps_TF.to(type))) << row[0].document;
      EXPECT_TRUE(at::equal(stored.last_TD, now.last_TD.to(type).to(at::kFloat)));
      EXPECT_EQ(stored.argmax, now.argmax) << row[0].document;
      EXPECT_EQ(stored.ids, now.ids);
    }
  }
}

TEST(Capture, AnotherDatasetIsRefused) {
  const Model model = tiny_model();
  auto other = tiny_dataset(6);
  other.ids[0] += 1;
  TempFolder folder;
  auto options = options_for(folder);
  options.tokens_per_shard = options.rows_per_pass = 10;
  capture(*model.target, tiny_dataset(6), options);
  EXPECT_THROW(capture(*model.target, other, options), Error) << "complete";
  Json index = read_json(options.out / "features.json");
  index["complete"] = false;
  index["shards"].erase(index["shards"].size() - 1);
  write_json(options.out / "features.json", index);
  EXPECT_THAT(testing::error_of<Error>([&] { capture(*model.target, other, options); }),
              ::testing::HasSubstr("another dataset"));
  EXPECT_GT(capture(*model.target, tiny_dataset(6), options).resumed, 0);
}

// Parts of both have the same names.
TEST(Capture, ADatasetIsNotOverwritten) {
  const Model model = tiny_model();
  const TempFolder folder;
  const auto dataset = tiny_dataset(2);
  auto options = options_for(folder);
  options.out = folder / "set";
  data::save_dataset(options.out, dataset);
  EXPECT_THROW(capture(*model.target, dataset, options), Error);
  EXPECT_EQ(data::load_dataset(options.out).ids, dataset.ids);
}

TEST(Capture, StopsAndGoesOn) {
  const Model model = tiny_model();
  const auto dataset = tiny_dataset(6);
  TempFolder folder;
  auto options = options_for(folder);
  set_stop_signal(2);
  const auto stopped = capture(*model.target, dataset, options);
  set_stop_signal(0);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_THROW(data::FeatureReader{options.out}, Error) << "an unfinished folder is no folder";
  const auto rest = capture(*model.target, dataset, options);
  EXPECT_FALSE(rest.stopped);
  EXPECT_EQ(rest.documents + rest.resumed, 6);
  EXPECT_EQ(capture(*model.target, dataset, options).resumed, 6) << "complete: nothing to do";
}

TEST(Capture, QuarantinesDocumentsThatAreNotFinite) {  // R-CAP-6
  const auto dataset = tiny_dataset(8);
  const auto first = [&](int64_t d) { return dataset.document_ids(d)[0]; };
  TempFolder one, many;
  auto options = options_for(one);
  const BrokenTarget slightly(tiny_model().target, {first(3)});
  const auto report = capture(slightly, dataset, options);
  EXPECT_EQ(report.quarantined, 1);
  EXPECT_FALSE(data::FeatureReader(options.out).has(3));
  EXPECT_TRUE(data::FeatureReader(options.out).has(4));
  const BrokenTarget badly(tiny_model().target,
                           {first(0), first(1), first(2), first(3), first(4), first(5)});
  options.out = many / "features";
  EXPECT_THROW(capture(badly, dataset, options), Error);
}

}  // namespace
}  // namespace dflash::jobs
