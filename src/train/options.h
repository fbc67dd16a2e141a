// All settings of a training run, as the run's file and header show them.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "train/losses.h"
#include "train/optimizer.h"

namespace dflash::train {

enum class NoiseKind { kNone, kGaussian, kUniform };

/// Added to the drafter's input features only; labels and teacher never see it.
struct NoiseOptions {
  NoiseKind kind = NoiseKind::kNone;
  double scale = 0.0;   // standard deviation (Gaussian) or half width (uniform)
  bool anneal = false;  // cosine from `scale` to 0 over the run instead of constant
};

/// Defaults are the paper's recipe, with Muon for the matrices.
struct TrainOptions {
  LossOptions loss;
  OptimizerOptions optimizer;
  NoiseOptions noise;

  int64_t row_tokens = 2048;          // tokens of a packed row; longer documents are cut
  int64_t anchors_per_document = 64;  // budget of a document in an epoch, redrawn every epoch
  int64_t anchors_per_step = 256;     // rows are added to a step until it has at least so many
  int64_t anchors_per_pass = 512;     // blocks of one forward; a row with more is split
  uint64_t seed = 0;                  // order of documents, anchors and noise

  int64_t epochs = 6;          // passes over the dataset; decides the steps unless total_steps does
  int64_t total_steps = 0;     // length of the schedule; 0: as many as the epochs have
  double warmup_share = 0.04;  // of the steps

  int64_t save_every = 500;      // steps between checkpoints; 0: only at the end
  int64_t validate_every = 500;  // steps between calls of validate; 0: only at the end
  int64_t keep_last = 2;         // checkpoints kept besides the best
  int64_t max_bad_steps = 5;     // steps in a row with non-finite values before the run gives up

  Json to_json() const;
};

/// Error when a value is impossible.
void check_options(const TrainOptions& options);

}  // namespace dflash::train
