#include "train/source.h"

#include <ATen/ops/full.h>

#include "base/error.h"
#include "base/profile.h"
#include "nn/compute.h"

namespace dflash::train {
namespace {

/// Ids, documents, positions and mask of a row; the features are filled in by the caller.
FeatureRow lay_out(const data::Dataset& dataset,
                   const std::vector<data::PackedPlan::Piece>& pieces) {
  FeatureRow row;
  for (const auto& piece : pieces) {
    const auto ids = dataset.document_ids(piece.document);
    const auto mask = dataset.document_mask(piece.document);
    DF_ASSERT(piece.length > 0 && piece.length <= static_cast<int64_t>(ids.size()),
              "piece of {} tokens, document of {}", piece.length, ids.size());
    row.ids.insert(row.ids.end(), ids.begin(), ids.begin() + piece.length);
    row.loss_mask.insert(row.loss_mask.end(), mask.begin(), mask.begin() + piece.length);
    row.doc.insert(row.doc.end(), piece.length, static_cast<int64_t>(row.document.size()));
    for (int64_t t = 0; t < piece.length; ++t) row.pos.push_back(t);
    row.document.push_back(piece.document);
  }
  return row;
}

at::ScalarType type_of(io::Dtype dtype) {
  if (dtype == io::Dtype::kBF16) return at::kBFloat16;
  if (dtype == io::Dtype::kF32) return at::kFloat;
  fail("features: expected bf16 or f32, got {}", io::dtype_name(dtype));
}

class FileSource : public FeatureSource {
 public:
  FileSource(const data::Dataset& dataset, std::shared_ptr<const data::FeatureReader> features)
      : dataset_(dataset), features_(std::move(features)) {}

  FeatureRow row(const std::vector<data::PackedPlan::Piece>& pieces) override {
    FeatureRow row = lay_out(dataset_, pieces);
    const auto type = type_of(features_->info().dtype);
    const auto tokens = static_cast<int64_t>(row.ids.size());
    row.taps_TF = at::empty({tokens, feature_size()}, type);
    if (has_last()) row.last_TD = at::empty({tokens, features_->info().hidden_size}, type);
    int64_t first = 0;
    for (const auto& piece : pieces) {
      if (!features_->has(piece.document)) {  // left out by capture; its mask must be empty
        fill_absent(row, first, piece.length);
        first += piece.length;
        continue;
      }
      const data::DocumentFeatures features =
          features_->get(piece.document, dataset_.document_ids(piece.document));
      copy(features.taps, row.taps_TF.narrow(0, first, piece.length), piece.document);
      if (has_last()) {
        copy(features.last, row.last_TD.narrow(0, first, piece.length), piece.document);
      }
      row.argmax.insert(row.argmax.end(), features.argmax.begin(),
                        features.argmax.begin() + piece.length);
      first += piece.length;
    }
    if (has_last()) row.last_TD = row.last_TD.to(at::kFloat);
    return row;
  }

  int64_t feature_size() const override {
    return features_->info().hidden_size * static_cast<int64_t>(features_->info().taps.size());
  }
  bool has_last() const override { return features_->info().has_last; }

 private:
  static void fill_absent(FeatureRow& row, int64_t first, int64_t length) {
    row.taps_TF.narrow(0, first, length).zero_();
    if (row.last_TD.defined()) row.last_TD.narrow(0, first, length).zero_();
    row.argmax.insert(row.argmax.end(), length, 0);
  }
  static void copy(std::span<const std::byte> from, const at::Tensor& to, int64_t document) {
    const profile::Range range("features", "read", [&] {
      return profile::Work{.bytes = 2.0 * static_cast<double>(to.nbytes())};
    });
    if (from.size() < to.nbytes()) {
      fail("features of document {}: expected {} bytes, got {}", document, to.nbytes(),
           from.size());
    }
    std::memcpy(to.data_ptr(), from.data(), to.nbytes());
  }

  const data::Dataset& dataset_;
  std::shared_ptr<const data::FeatureReader> features_;
};

class LiveSource : public FeatureSource {
 public:
  LiveSource(const data::Dataset& dataset, std::shared_ptr<const target::Target> target,
             std::vector<int64_t> taps, bool with_last)
      : dataset_(dataset),
        target_(std::move(target)),
        options_{std::move(taps)},
        with_last_(with_last) {}

  FeatureRow row(const std::vector<data::PackedPlan::Piece>& pieces) override {
    const c10::NoGradGuard guard;
    FeatureRow row = lay_out(dataset_, pieces);
    std::vector<std::unique_ptr<target::State>> states;
    std::vector<target::Segment> segments;
    int64_t first = 0;
    for (const auto& piece : pieces) {
      states.push_back(target_->new_state());
      segments.push_back({states.back().get(), first, piece.length, /*undo=*/false});
      first += piece.length;
    }
    const target::Hidden hidden = target_->forward(
        {at::tensor(row.ids, at::kLong), at::tensor(row.pos, at::kLong), segments}, options_);
    row.taps_TF = hidden.taps_RF;
    const at::Tensor argmax = target_->head().argmax(target_->final_norm(hidden.last_RD));
    row.argmax.assign(argmax.const_data_ptr<int64_t>(),
                      argmax.const_data_ptr<int64_t>() + argmax.numel());
    row.last_TD = hidden.last_RD;  // always: what comes after the taps may overflow too
    return row;
  }

  int64_t feature_size() const override {
    return target_->config().hidden_size * static_cast<int64_t>(options_.taps.size());
  }
  bool has_last() const override { return with_last_; }

 private:
  const data::Dataset& dataset_;
  std::shared_ptr<const target::Target> target_;
  target::ForwardOptions options_;
  bool with_last_;
};

}  // namespace

std::unique_ptr<FeatureSource> file_source(const data::Dataset& dataset,
                                           std::shared_ptr<const data::FeatureReader> features) {
  return std::make_unique<FileSource>(dataset, std::move(features));
}

std::unique_ptr<FeatureSource> live_source(const data::Dataset& dataset,
                                           std::shared_ptr<const target::Target> target,
                                           std::vector<int64_t> taps, bool with_last) {
  return std::make_unique<LiveSource>(dataset, std::move(target), std::move(taps), with_last);
}

}  // namespace dflash::train
