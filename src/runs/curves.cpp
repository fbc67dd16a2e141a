#include "runs/curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "runs/pairs.h"

namespace dflash::runs {
namespace {

constexpr int64_t kLeastPairs = 10, kMostWindows = 50;
constexpr double kStandardErrors = 3.0, kSameSize = 0.1;

int64_t position(const Step& step, Axis axis) {
  return axis == Axis::kStep ? step.step : step.anchors_seen;
}

bool same_bits(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

std::vector<std::string> differing_fields(const Step& a, const Step& b) {
  struct Field {
    const char* name;
    Metric metric;
  };
  constexpr std::array kFields = {Field{"rate", &Step::rate_factor}, Field{"loss", &Step::loss},
                                  Field{"accuracy", &Step::accuracy},
                                  Field{"expected acceptance", &Step::expected_acceptance},
                                  Field{"grad norm", &Step::grad_norm}};
  std::vector<std::string> out;
  if (a.anchors != b.anchors) out.emplace_back("anchors");
  for (const Field& field : kFields) {
    if (!same_bits(a.*field.metric, b.*field.metric)) out.emplace_back(field.name);
  }
  return out;
}

struct Window {
  size_t begin, end;  // pairs
  double mean, error;

  /// -1, 0 (not apart), 1.
  int side() const {
    if (!(std::abs(mean) > kStandardErrors * error)) return 0;
    return mean > 0 ? 1 : -1;
  }
};

Window measure(const std::vector<Pair>& pairs, size_t begin, size_t end) {
  const auto n = static_cast<double>(end - begin);
  double sum = 0, squares = 0;
  for (size_t i = begin; i < end; ++i) sum += pairs[i].difference;
  const double mean = sum / n;
  for (size_t i = begin; i < end; ++i) squares += std::pow(pairs[i].difference - mean, 2);
  return {begin, end, mean, std::sqrt(squares / (n - 1) / n)};
}

/// What does not fill a window joins the last one.
std::vector<Window> cut(const std::vector<Pair>& pairs, size_t size) {
  std::vector<Window> out;
  const size_t count = pairs.size() / size;
  for (size_t w = 0; w < count; ++w) {
    out.push_back(measure(pairs, w * size, w + 1 == count ? pairs.size() : (w + 1) * size));
  }
  return out;
}

/// Means over the finite values of steps.
class Means {
 public:
  void add(const Step& step) {
    for (size_t i = 0; i < kMetrics.size(); ++i) {
      const double value = step.*kMetrics[i];
      if (!std::isfinite(value)) continue;
      sums_[i] += value;
      ++counts_[i];
    }
    ++point_.num_steps;
    point_.last_step = step.step;
    point_.anchors_seen = step.anchors_seen;
  }
  Point point() const {
    Point out = point_;
    out.loss = mean(0);
    out.accuracy = mean(1);
    out.expected_acceptance = mean(2);
    out.grad_norm = mean(3);
    return out;
  }

 private:
  static constexpr std::array<Metric, 4> kMetrics = {&Step::loss, &Step::accuracy,
                                                     &Step::expected_acceptance, &Step::grad_norm};
  double mean(size_t i) const {
    return counts_[i] > 0 ? sums_[i] / static_cast<double>(counts_[i])
                          : std::numeric_limits<double>::quiet_NaN();
  }

  std::array<double, 4> sums_ = {};
  std::array<int64_t, 4> counts_ = {};
  Point point_;
};

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kTooShort:
      return "too short";
    case Verdict::kTogether:
      return "together";
    case Verdict::kApart:
      return "apart";
    case Verdict::kMetAgain:
      return "met again";
  }
  return "";
}

}  // namespace

const char* axis_name(Axis axis) {
  return axis == Axis::kStep ? "step" : "anchors";
}

Axis fitting_axis(const std::vector<TrainingRun>& runs) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const TrainingRun& run : runs) {
    if (run.has_gaps) return Axis::kStep;
    if (run.steps.empty()) continue;
    const double size =
        static_cast<double>(run.anchors_seen()) / static_cast<double>(run.steps.size());
    least = std::min(least, size);
    most = std::max(most, size);
  }
  return most > (1 + kSameSize) * least ? Axis::kAnchors : Axis::kStep;
}

Identity compare_bits(const TrainingRun& a, const TrainingRun& b) {
  Identity out;
  auto other = b.steps.begin();
  for (const Step& step : a.steps) {
    while (other != b.steps.end() && other->step < step.step) ++other;
    if (other == b.steps.end()) break;
    if (other->step != step.step) continue;
    ++out.common_steps;
    if (out.first_other != 0) continue;
    out.fields = differing_fields(step, *other);
    (out.fields.empty() ? out.same_until : out.first_other) = step.step;
  }
  return out;
}

Parting find_parting(const TrainingRun& a, const TrainingRun& b, Axis axis, Metric metric) {
  const auto first_step_at = [&](int64_t position) {
    return std::partition_point(a.steps.begin(), a.steps.end(), [&](const Step& step) {
      return weights_position(step, axis) < position;
    });
  };
  const auto pairs = make_pairs(a, b, axis, metric);
  Parting out;
  out.num_pairs = static_cast<int64_t>(pairs.size());
  out.pairs_per_window = std::max(kLeastPairs, (out.num_pairs + kMostWindows - 1) / kMostWindows);
  const auto windows = cut(pairs, static_cast<size_t>(out.pairs_per_window));
  if (windows.size() < 2) return out;
  out.verdict = Verdict::kTogether;
  out.difference = windows.back().mean;
  out.error = windows.back().error;
  for (size_t begin = 0, end = 0; begin < windows.size(); begin = end) {
    const int side = windows[begin].side();
    for (end = begin + 1; end < windows.size() && windows[end].side() == side; ++end) {
    }
    if (side == 0 || end - begin < 2) continue;
    const Window& last = windows[end - 1];
    const int64_t from = pairs[windows[begin].begin].position, to = pairs[last.end - 1].position;
    const Step& first = *first_step_at(from);
    out.verdict = end == windows.size() ? Verdict::kApart : Verdict::kMetAgain;
    out.from_step = first.step;
    out.from_anchors = first.anchors_seen;
    out.to_step = std::prev(first_step_at(to + 1))->step;
    out.difference = last.mean;
    out.error = last.error;
  }
  return out;
}

Json Parting::to_json() const {
  Json json = {{"verdict", verdict_name(verdict)},
               {"pairs", num_pairs},
               {"pairs_per_window", pairs_per_window}};
  if (verdict == Verdict::kTooShort) return json;
  json.update({{"difference", difference}, {"standard_error", error}});
  if (from_step > 0) {
    json.update({{"from_step", from_step}, {"from_anchors", from_anchors}, {"to_step", to_step}});
  }
  return json;
}

Json Point::to_json() const {
  if (num_steps == 0) return nullptr;
  return {{"steps", num_steps},      {"last_step", last_step},
          {"anchors", anchors_seen}, {"loss", loss},
          {"accuracy", accuracy},    {"expected_acceptance", expected_acceptance},
          {"grad_norm", grad_norm}};
}

std::vector<CurveWindow> smooth(const std::vector<TrainingRun>& runs, Axis axis, int64_t count) {
  int64_t longest = 0;
  for (const TrainingRun& run : runs) {
    if (!run.steps.empty()) longest = std::max(longest, position(run.steps.back(), axis));
  }
  const int64_t width = std::max<int64_t>((longest + count - 1) / count, 1);
  std::vector<CurveWindow> windows;
  for (int64_t begin = 0; begin < longest; begin += width) {
    windows.push_back({begin, std::min(begin + width, longest), {}});
  }
  for (const TrainingRun& run : runs) {
    auto step = run.steps.begin();
    for (CurveWindow& window : windows) {
      Means means;
      for (; step != run.steps.end() && position(*step, axis) <= window.end; ++step) {
        means.add(*step);
      }
      window.points.push_back(means.point());
    }
  }
  return windows;
}

Point last_steps(const TrainingRun& run, int64_t count) {
  Means means;
  const auto size = static_cast<int64_t>(run.steps.size());
  for (int64_t i = std::max<int64_t>(size - count, 0); i < size; ++i) means.add(run.steps[i]);
  return means.point();
}

}  // namespace dflash::runs
