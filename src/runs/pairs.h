// Two curves side by side: where both ran, how far the second was above the first. Internal to
// runs.
#pragma once

#include <cstdint>
#include <vector>

#include "runs/curves.h"

namespace dflash::runs {

/// Where a step's weights stood when its loss was measured: its number, or the anchors before its
/// own.
int64_t weights_position(const Step& step, Axis axis);

struct Pair {
  int64_t position = 0;   // weights_position of the step that gave the pair
  double difference = 0;  // second minus first
};

/// By step: steps with the same number. By anchors: every step of the run with the larger steps (by
/// their mean), paired with the other run's curve at its position: the line through that one's
/// steps, averaged over a stretch that is centred there and as long as the larger steps exceed the
/// smaller ones. A straight line is so compared exactly, whatever its slope, steps of one size pair
/// one to one, and swapping the runs changes nothing but signs. Ascending; pairs that a value
/// without number would enter are left out.
std::vector<Pair> make_pairs(const TrainingRun& a, const TrainingRun& b, Axis axis, Metric metric);

}  // namespace dflash::runs
