// Which documents make a step, and what their blocks train: the part of training before any
// arithmetic. The position in the data is kept in documents, so it survives a change of row length
// or of anchors per step (CK-07).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "block/blocks.h"
#include "data/dataset.h"
#include "train/options.h"
#include "train/source.h"
#include "train/vocabulary.h"

namespace dflash::train {

/// `documents` of the epoch's order are consumed.
struct Position {
  int64_t epoch = 0, documents = 0;
};

/// Hands out packed rows, epoch after epoch, each with the number of anchors it will have.
class RowStream {
 public:
  struct Row {
    std::vector<data::PackedPlan::Piece> pieces;
    std::vector<int64_t> piece_anchors = {};
    int64_t epoch = 0, anchors = 0;
    /// Noise is drawn for the row that was packed, of which this may be a part (ranks.h).
    int64_t noise_document = 0, noise_token = 0;
  };

  /// Error when the dataset has no legal anchor at all.
  RowStream(const data::Dataset& dataset, const TrainOptions& options);

  void seek(Position position);
  Position position() const { return position_; }
  /// The rows of the next step: whole rows of one epoch until they have anchors_per_step anchors
  /// (the last step of an epoch may have fewer). Rows without anchors are passed over.
  std::vector<Row> next_step();
  /// Steps of the first `epochs` epochs.
  int64_t count_steps(int64_t epochs) const;
  int64_t anchors_per_epoch() const { return total_anchors_; }

 private:
  void plan(int64_t epoch, int64_t documents);
  int64_t anchors_of(const std::vector<data::PackedPlan::Piece>& pieces) const;

  const data::Dataset& dataset_;
  TrainOptions options_;
  std::vector<int64_t> anchors_D_;  // per document, in every epoch alike
  int64_t total_anchors_ = 0;
  Position position_;
  data::PackedPlan plan_;  // what is left of the epoch
  size_t next_row_ = 0;
};

/// One forward and backward: blocks of one packed row. All flat [N * K] in block order.
struct Pass {
  block::Blocks blocks;
  std::vector<uint8_t> supervised_NK;  // counts in the metrics
  std::vector<float> trained_NK;       // 1: in the loss (supervised, label in the vocabulary)
  at::Tensor slot_M;                   // int64 indices into N * K of the trained slots
  at::Tensor label_M;                  // int64 draft ids
  at::Tensor teacher_row_M;            // int64 rows of last_TD
};

/// Anchors of a row, split into passes. `argmax` labels are the target's own choices.
std::vector<Pass> make_passes(const FeatureRow& row, int64_t epoch, const block::BlockRule& rule,
                              const TrainOptions& options, const Vocabulary& vocabulary);

/// Scale of the noise at a step: constant, or half a cosine down to 0 at the last.
double noise_scale(const NoiseOptions& noise, int64_t step, int64_t total_steps);

/// What the noise of a row depends on: (seed, step, document) and the place of a value after
/// `first_token`.
struct NoiseDraw {
  double scale = 0;
  uint64_t seed = 0;
  int64_t step = 0, document = 0, first_token = 0;
};

/// taps_TF with noise; the row keeps its own.
at::Tensor noisy_taps(const FeatureRow& row, const NoiseOptions& noise, const NoiseDraw& draw);

}  // namespace dflash::train
