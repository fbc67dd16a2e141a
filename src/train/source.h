// Where training gets packed rows with features from: files written by capture, or a live target in
// the same process. Both give the same rows for the same dataset, order and taps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "block/blocks.h"
#include "data/dataset.h"
#include "data/features.h"
#include "target/target.h"

namespace dflash::train {

/// One packed row: whole documents one after the other (cut at the row length), no padding.
struct FeatureRow {
  std::vector<int64_t> ids, doc, pos;  // doc: 0.. inside the row; pos: 0-based per document
  std::vector<uint8_t> loss_mask;
  std::vector<int64_t> document;  // dataset number of each document of the row
  at::Tensor taps_TF;             // f32, or bf16 where features are stored so
  std::vector<int64_t> argmax;    // target's argmax after each token (teacher rows)
  at::Tensor last_TD;             // f32, pre-norm; may be undefined unless soft losses ask for it

  block::PackedRow packed() const { return {ids, loss_mask, doc}; }
};

class FeatureSource {
 public:
  virtual ~FeatureSource() = default;
  /// Features of the given pieces of documents (numbers of the dataset), in order.
  virtual FeatureRow row(const std::vector<data::PackedPlan::Piece>& pieces) = 0;
  virtual int64_t feature_size() const = 0;
  /// Whether rows carry last_TD.
  virtual bool has_last() const = 0;
};

std::unique_ptr<FeatureSource> file_source(const data::Dataset& dataset,
                                           std::shared_ptr<const data::FeatureReader> features);
/// `with_last`: also keep the final hidden state. Runs under NoGradGuard.
std::unique_ptr<FeatureSource> live_source(const data::Dataset& dataset,
                                           std::shared_ptr<const target::Target> target,
                                           std::vector<int64_t> taps, bool with_last);

}  // namespace dflash::train
