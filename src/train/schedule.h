// Learning rate over a run: linear warm-up, then cosine to zero (R-TR-1); and how many steps fit
// into a given time.
#pragma once

#include <cstdint>

namespace dflash::train {

struct Schedule {
  int64_t total_steps = 0;
  int64_t warmup_steps = 0;
  int64_t pivot_step = 0;  // where the length was last changed; within warm-up it counts for none
  double pivot_t = 0;      // t at that step

  /// Factor of the peak rate at a 0-based step: (s+1)/warmup, then (1 + cos(pi t)) / 2 where t runs
  /// from 0 at the first step after warm-up to 1 at the end, linearly since the pivot.
  double factor(int64_t step) const;

  /// Another length from `step` on. What is left of the cosine is spread over the steps that are
  /// left, without a jump of the rate; a warm-up that is not over keeps its share.
  void refit(int64_t step, int64_t new_total_steps);

 private:
  double t(int64_t step) const;
};

/// `warmup_share` of all steps, at least one.
Schedule make_schedule(int64_t total_steps, double warmup_share);

/// Steps that a machine doing `anchors_per_second` finishes in `seconds`, at least `minimum`.
int64_t plan_steps(double anchors_per_second, double seconds, int64_t anchors_per_step,
                   int64_t minimum = 10);

}  // namespace dflash::train
