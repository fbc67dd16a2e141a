#include "train/schedule.h"

#include <algorithm>
#include <cmath>

namespace dflash::train {

double Schedule::factor(int64_t step) const {
  if (step < warmup_steps) {
    return static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  return 0.5 * (1.0 + std::cos(M_PI * t(step)));
}

double Schedule::t(int64_t step) const {
  const int64_t from = std::max(pivot_step, warmup_steps);
  const double rest = static_cast<double>(std::max<int64_t>(total_steps - from, 1));
  const double since = std::min(static_cast<double>(step - from) / rest, 1.0);
  return pivot_t + (1.0 - pivot_t) * since;
}

void Schedule::refit(int64_t step, int64_t new_total_steps) {
  if (step > std::max(pivot_step, warmup_steps)) {
    pivot_t = t(step);
    pivot_step = step;
  } else {
    const double share =
        static_cast<double>(warmup_steps) / static_cast<double>(std::max<int64_t>(total_steps, 1));
    const auto scaled = std::llround(static_cast<double>(new_total_steps) * share);
    warmup_steps = std::max<int64_t>(scaled, step);
  }
  total_steps = new_total_steps;
}

Schedule make_schedule(int64_t total_steps, double warmup_share) {
  const auto warmup =
      static_cast<int64_t>(std::llround(static_cast<double>(total_steps) * warmup_share));
  return {total_steps, std::clamp<int64_t>(warmup, std::min<int64_t>(1, total_steps), total_steps)};
}

int64_t plan_steps(double anchors_per_second, double seconds, int64_t anchors_per_step,
                   int64_t minimum) {
  const double steps = anchors_per_second * seconds / static_cast<double>(anchors_per_step);
  return std::max(minimum, static_cast<int64_t>(std::min(steps, 1e12)));
}

}  // namespace dflash::train
