// A training run as its folder tells it (run.json, metrics.jsonl, checkpoints/), for people who
// compare runs. Reads only; a run that is being written or that a crash cut off is read as far as
// it goes. The format's other side is train/run.h.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace dflash::runs {

/// A step's line of metrics.jsonl. NaN: not in the line, or not finite when it was written.
struct Step {
  int64_t step = 0;
  int64_t anchors = 0, anchors_seen = 0;  // of this step; of all steps up to it
  double loss = 0, accuracy = 0, expected_acceptance = 0, grad_norm = 0, rate_factor = 0;
  double seconds = 0;
  bool applied = true;                // false: not finite, the weights stayed
  std::vector<double> slot_accuracy;  // slot 0 is the anchor's
};

/// Real decoding of held-out prompts after a step.
struct Validation {
  int64_t step = 0;
  double tau = 0;
  std::vector<double> slot_acceptance;  // slots 1, 2, ...
};

enum class State { kBegun, kRunning, kStopped, kFinished };
const char* state_name(State state);

struct TrainingRun {
  std::filesystem::path path;
  Json record;                    // run.json
  Json dataset = Json::object();  // what the newest complete checkpoint says of its dataset
  std::vector<Step> steps;        // steps ascend
  std::vector<Validation> validations;
  int64_t total_steps = 0;            // of the schedule, as fitted last
  std::time_t written = 0;            // when metrics.jsonl last grew
  State state = State::kBegun;        // running: a process holds the folder's lock
  std::vector<std::string> problems;  // what could not be read, a sentence each
  bool has_gaps = false;              // steps are missing: `anchors_seen` counts too few

  int64_t last_step() const { return steps.empty() ? 0 : steps.back().step; }
  int64_t anchors_seen() const { return steps.empty() ? 0 : steps.back().anchors_seen; }
  /// Of the steps alone, without validating and saving; 0: no time was measured.
  double anchors_per_second() const;
  /// "llama, 30 blocks, hidden 576, vocabulary 49152, Q4_1 as bf16", without kernels and threads.
  std::string target() const;
};

/// Error: no run.json, or not one of format "dflash-run" and version 1. What is broken in
/// metrics.jsonl is left out and said in `problems`.
TrainingRun read_run(const std::filesystem::path& path);

/// TrainingRun folders at `path` or under it, by name: a run itself (also its run.json or
/// metrics.jsonl), else those at most four folders down. Links are not followed. Error: nothing
/// there.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& path);

}  // namespace dflash::runs
