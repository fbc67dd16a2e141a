// The training step: gather -> forward -> loss -> backward -> sum -> clip -> check -> update, in
// this order and nothing else. What surrounds it (folders, checkpoints, validation, signals) is
// run.h. With several ranks each takes its share of the step's rows; sums and decisions are the
// same on all, so every rank makes the same update and weights stay equal to the bit.
//
// Everything random is keyed by (seed, epoch, document, position), so the state of a run is its
// weights, its moments and two counters; a resumed run equals an unbroken one bit for bit on the
// same kernels and threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "base/comm.h"
#include "base/json.h"
#include "data/dataset.h"
#include "draft/drafter.h"
#include "nn/head.h"
#include "train/batch.h"
#include "train/checkpoint.h"
#include "train/losses.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/schedule.h"
#include "train/source.h"

namespace dflash::train {

/// What a trainer works on; all frozen but the drafter. The references must outlive it.
struct TrainParts {
  const data::Dataset& dataset;
  FeatureSource& source;
  std::shared_ptr<draft::Drafter> drafter;
  nn::Table table;  // the target's
  nn::Head head;    // the drafter's: the target's, or its rows of the draft vocabulary (id_V)
  /// Target::final_norm; soft losses only.
  std::function<at::Tensor(const at::Tensor& last_RD)> final_norm = {};
  /// The target's head over the ids of `head`, where that is the drafter's own; soft losses only.
  std::optional<nn::Head> teacher_head = {};
  Comm* comm = &solo_comm();  // the ranks that train together; all of them make the same calls
};

/// Seconds of one step by phase; reduce: sums over the ranks and waiting for them.
struct PhaseSeconds {
  double gather = 0, forward = 0, loss = 0, backward = 0, reduce = 0, update = 0;
  double orthogonalise = 0;  // part of update
  double total() const { return gather + forward + loss + backward + reduce + update; }
  PhaseSeconds& operator+=(const PhaseSeconds& other);
  PhaseSeconds& operator/=(double count);
  Json to_json() const;
};

/// Of all ranks together, but for the seconds, which are this rank's.
struct StepMetrics {
  int64_t step = 0;                  // 1-based number of the step that this describes
  int64_t epoch = 0, documents = 0;  // data position after it
  int64_t tokens = 0, anchors = 0, trained_slots = 0;
  double loss = 0, grad_norm = 0, rate_factor = 0;
  bool applied = true;  // false: something was not finite, weights were left alone
  SlotMetrics slots;
  PhaseSeconds seconds;
  Json to_json() const;
};

class Trainer {
 public:
  /// Errors: impossible options, a head or features that do not fit the drafter, soft losses
  /// without final hidden states, no legal anchors.
  Trainer(TrainParts parts, const TrainOptions& options);

  /// One optimizer step. Error after options.max_bad_steps in a row that were not finite, and when
  /// more than half of the documents met so far had non-finite features (once 16, or all, are met).
  StepMetrics step();

  int64_t steps_done() const { return step_; }
  int64_t total_steps() const { return schedule_.total_steps; }
  /// Fixes the length of the schedule; before the first step only.
  void set_total_steps(int64_t steps);
  /// Another length while it runs: the rate goes on from where it is to zero at the new end.
  void refit_total_steps(int64_t steps);
  /// Anchors of a step on average: whole rows are taken, so more than anchors_per_step.
  int64_t mean_anchors_per_step() const {
    return stream_.anchors_per_epoch() / std::max<int64_t>(1, stream_.count_steps(1));
  }
  /// Anchors per second over about `seconds` of steps, all of whose effects are undone.
  double measure_rate(double seconds);

  /// Weights (bit-exact), moments, counters, data position.
  CheckpointContent checkpoint(double tau) const;
  /// Continues there. Error when drafter, optimizer or dataset differ; changed options, kernels or
  /// threads and appended documents are logged: the run then is not bit-equal to an unbroken one.
  void restore(const LoadedCheckpoint& checkpoint);

  /// Calls `work` with weights packed for decoding; grad mode and the global generator are as
  /// before afterwards (R-TR-8).
  Json validate(const std::function<Json(const draft::Drafter&)>& work);

  const TrainOptions& options() const { return options_; }
  const std::shared_ptr<draft::Drafter>& drafter() const { return parts_.drafter; }
  /// Resolved values for headers and run.json.
  Json header() const;
  /// One line: what is summed and by what it is divided.
  std::string loss_rule() const;

  Comm& comm() const { return *parts_.comm; }
  /// Errors naming the first of what is not the same on all ranks: settings (`more` beside this
  /// trainer's own), trainable and frozen tensors, moments.
  void expect_equal_ranks(const Json& more) const;
  /// The weights alone.
  void expect_equal_weights() const;

 private:
  struct Sums;
  at::Tensor embed(const block::Blocks& blocks) const;
  void quarantine(FeatureRow& row, Sums& sums);
  void run_pass(const FeatureRow& row, const at::Tensor& taps_TF, const Pass& pass, Sums& sums);
  void take_row(const RowStream::Row& planned, Sums& sums);
  void sum_over_ranks(Sums& sums);
  void judge_documents(const std::vector<RowStream::Row>& rows, const Sums& sums);

  TrainParts parts_;
  TrainOptions options_;
  Vocabulary vocabulary_;
  std::unique_ptr<const Vocabulary> teacher_head_;  // null: vocabulary_ serves the teacher too
  Optimizer optimizer_;
  RowStream stream_;
  Schedule schedule_;
  int64_t step_ = 0, bad_steps_ = 0, bad_in_a_row_ = 0, anchors_done_ = 0;
  std::set<int64_t> documents_met_, documents_bad_;
};

}  // namespace dflash::train
