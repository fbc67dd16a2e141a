// Curves of two runs: until where they are the same bit for bit, and from where on they are apart
// beyond noise. Numbers only.
//
// The statistic. Losses are paired where the weights of both runs stood at the same place: steps of
// the same number, or, aligned by anchors, each step of the run with the larger steps with the
// other run's curve around it (runs/pairs.h). What both share, the falling curve and often the very
// batch, drops out of the difference. Pairs are cut into windows of at least 10, at most 50
// windows. A window is apart when |mean difference| > 3 standard errors (deviation of the window's
// differences / sqrt(pairs)); curves are apart where at least two windows in a row are, to the same
// side. One window alone is noise's. Swapping the runs mirrors the difference and keeps the
// verdict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runs/run.h"

namespace dflash::runs {

/// What steps of two runs are aligned by.
enum class Axis { kStep, kAnchors };
const char* axis_name(Axis axis);
/// Steps, unless the runs' steps differ in size by more than a tenth and none is missing.
Axis fitting_axis(const std::vector<TrainingRun>& runs);

using Metric = double Step::*;

struct Identity {
  int64_t common_steps = 0;  // step numbers that both have
  int64_t same_until = 0;    // the last step up to which all common steps are equal; 0: none is
  int64_t first_other = 0;   // the common step after it; 0: all are equal
  std::vector<std::string>
      fields;  // that differ there: "anchors", "rate", "loss", "grad norm", ...
};
Identity compare_bits(const TrainingRun& a, const TrainingRun& b);

enum class Verdict {
  kTooShort,  // fewer than two windows of pairs
  kTogether,  // nowhere apart
  kApart,     // apart from a step on, to the end of what both have
  kMetAgain,  // apart for a while, not at the end
};

struct Parting {
  Verdict verdict = Verdict::kTooShort;
  int64_t num_pairs = 0, pairs_per_window = 0;
  // The last stretch that is apart, in steps of the first run (both inclusive; those within the
  // stretch); 0 when none is.
  int64_t from_step = 0, to_step = 0, from_anchors = 0;
  // Mean of second minus first and its standard error over the stretch's last window; with nowhere
  // apart over the last window of all.
  double difference = 0, error = 0;

  Json to_json() const;
};
Parting find_parting(const TrainingRun& a, const TrainingRun& b, Axis axis, Metric metric);

/// Means of a run's steps within one window.
struct Point {
  int64_t num_steps = 0, last_step = 0, anchors_seen = 0;
  double loss = 0, accuracy = 0, expected_acceptance = 0, grad_norm = 0;  // NaN: no step has it

  Json to_json() const;
};
struct CurveWindow {
  int64_t begin = 0, end = 0;  // (begin, end] on the axis
  std::vector<Point> points;   // one a run; num_steps 0: the run has no step there
};
/// About `count` windows of equal length over the longest run.
std::vector<CurveWindow> smooth(const std::vector<TrainingRun>& runs, Axis axis, int64_t count);
/// The mean of a run's last `count` steps.
Point last_steps(const TrainingRun& run, int64_t count);

}  // namespace dflash::runs
