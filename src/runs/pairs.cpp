#include "runs/pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dflash::runs {
namespace {

std::vector<Pair> pairs_by_step(const TrainingRun& a, const TrainingRun& b, Metric metric) {
  std::vector<Pair> pairs;
  auto other = b.steps.begin();
  for (const Step& step : a.steps) {
    while (other != b.steps.end() && other->step < step.step) ++other;
    if (other == b.steps.end()) break;
    const double difference = (*other).*metric - step.*metric;
    if (other->step == step.step && std::isfinite(difference)) {
      pairs.push_back({step.step, difference});
    }
  }
  return pairs;
}

/// A metric over the anchors that the weights had seen.
class Curve {
 public:
  Curve(const TrainingRun& run, Metric metric) {
    for (const Step& step : run.steps) {
      positions_.push_back(weights_position(step, Axis::kAnchors));
      values_.push_back(step.*metric);
    }
    if (!run.steps.empty()) {
      const int64_t seen = run.anchors_seen() - positions_.front();
      step_size_ = static_cast<double>(seen) / static_cast<double>(run.steps.size());
    }
  }

  const std::vector<int64_t>& positions() const { return positions_; }
  const std::vector<double>& values() const { return values_; }
  double step_size() const { return step_size_; }
  /// A strict order, the same whichever run comes first.
  bool coarser_than(const Curve& other) const {
    if (step_size_ != other.step_size_) return step_size_ > other.step_size_;
    return positions_ > other.positions_;
  }

  /// Mean of the line through the steps over [at - half, at + half], less where it ends before, but
  /// always centred. NaN: outside the curve, or a value in it is.
  double mean_around(int64_t at, double half) const {
    if (positions_.empty() || at < positions_.front() || at > positions_.back()) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    const auto centre = static_cast<double>(at);
    half = std::min({half, centre - position(0), position(positions_.size() - 1) - centre});
    if (half <= 0) return value_at(at);
    double area = 0;
    for (size_t i = first_segment(centre - half); i + 1 < positions_.size(); ++i) {
      const double begin = std::max(centre - half, position(i));
      const double end = std::min(centre + half, position(i + 1));
      if (position(i) >= centre + half) break;
      if (begin < end) area += (end - begin) * on_segment(i, (begin + end) / 2);
    }
    return area / (2 * half);
  }

 private:
  double position(size_t i) const { return static_cast<double>(positions_[i]); }
  double on_segment(size_t i, double at) const {
    const double share = (at - position(i)) / (position(i + 1) - position(i));
    return values_[i] + share * (values_[i + 1] - values_[i]);
  }
  double value_at(int64_t at) const {
    const auto found = std::lower_bound(positions_.begin(), positions_.end(), at);
    const auto i = static_cast<size_t>(found - positions_.begin());
    return *found == at ? values_[i] : on_segment(i - 1, static_cast<double>(at));
  }
  /// The last step at or before `at`.
  size_t first_segment(double at) const {
    const auto after = std::upper_bound(positions_.begin(), positions_.end(), at);
    return static_cast<size_t>(std::max<int64_t>(after - positions_.begin() - 1, 0));
  }

  std::vector<int64_t> positions_;
  std::vector<double> values_;
  double step_size_ = 0;
};

std::vector<Pair> pairs_by_anchors(const Curve& a, const Curve& b) {
  const bool second = b.coarser_than(a);  // has the larger steps
  const Curve& coarse = second ? b : a;
  const Curve& fine = second ? a : b;
  const double half = (coarse.step_size() - fine.step_size()) / 2;
  std::vector<Pair> pairs;
  for (size_t i = 0; i < coarse.positions().size(); ++i) {
    const int64_t position = coarse.positions()[i];
    const double above = coarse.values()[i] - fine.mean_around(position, half);
    if (std::isfinite(above)) pairs.push_back({position, second ? above : -above});
  }
  return pairs;
}

}  // namespace

int64_t weights_position(const Step& step, Axis axis) {
  return axis == Axis::kStep ? step.step : step.anchors_seen - step.anchors;
}

std::vector<Pair> make_pairs(const TrainingRun& a, const TrainingRun& b, Axis axis, Metric metric) {
  if (axis == Axis::kStep) return pairs_by_step(a, b, metric);
  return pairs_by_anchors(Curve(a, metric), Curve(b, metric));
}

}  // namespace dflash::runs
