// A training run with its folder (DESIGN.md 5): run.json, metrics.jsonl, checkpoints/; validation,
// saving, resuming, stopping.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/metrics_file.h"
#include "train/trainer.h"

namespace dflash::train {

struct TrainCallbacks {
  /// After every step.
  std::function<void(const StepMetrics&)> on_step = {};
  /// Real decoding on held-out prompts; the result goes into metrics.jsonl, its number "tau"
  /// decides which checkpoint is the best. The drafter is packed for decoding.
  std::function<Json(const draft::Drafter&)> validate = {};
  /// Asked after every step; true ends the run after a checkpoint.
  std::function<bool()> should_stop = {};
};

struct RunOptions {
  std::filesystem::path folder;
  bool resume = false;           // continue from the newest complete checkpoint, if there is one
  Json config = Json::object();  // the caller's resolved options, for run.json
  double max_seconds = 0;        // 0: no limit; else the schedule is fitted to this time
  double probe_seconds = 6;      // how long to measure for the first plan
  std::function<double()> clock = {};  // seconds that pass; empty: the machine's (tests set it)
};

struct RunResult {
  int64_t steps = 0;
  bool finished = false;                       // false: should_stop ended it
  double seconds = 0, anchors_per_second = 0;  // of training, what earlier calls did included
  double last_tau = -1, best_tau = -1;         // -1: never validated
  std::filesystem::path last_checkpoint,
      best_checkpoint;  // best: the last one when never validated
  int64_t skipped = 0;  // steps of this call that changed nothing
  StepMetrics last;

  /// "500 steps in 6 min 02 s, 812 anchors/s, tau 1.523".
  std::string text() const;
  Json to_json() const;
};

/// Runs to the end of the schedule. With max_seconds anchors/s is measured first and the schedule's
/// length planned from it; every twentieth of the time the rest is fitted to the pace of the steps
/// so far, and a line {"step", "schedule": {...}} of metrics.jsonl says what was decided.
///
/// All ranks of the trainer call it, and a stop that one of them asks for stops all after the same
/// step. Rank 0 alone writes, validates and decides the length; on the others the result has no
/// paths and no best tau.
RunResult run_training(Trainer& trainer, const RunOptions& options,
                       const TrainCallbacks& callbacks);

}  // namespace dflash::train
