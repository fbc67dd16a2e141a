#include "runs/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "runs/text.h"

namespace dflash::runs {
namespace {

constexpr int64_t kCurveRows = 12;

Json validations_json(const TrainingRun& run) {
  Json list = Json::array();
  for (const Validation& validation : run.validations) {
    list.push_back({{"step", validation.step},
                    {"tau", validation.tau},
                    {"slot_acceptance", validation.slot_acceptance}});
  }
  return list;
}

Json run_json(const TrainingRun& run) {
  return {{"path", run.path.string()},
          {"state", state_name(run.state)},
          {"written", format_time(run.written)},
          {"target", run.target()},
          {"steps", run.last_step()},
          {"total_steps", run.total_steps},
          {"anchors", run.anchors_seen()},
          {"anchors_per_second", run.anchors_per_second()},
          {"steps_not_applied", num_not_applied(run)},
          {"end", last_steps(run, kLastSteps).to_json()},
          {"slot_accuracy", slot_accuracy_at_end(run)},
          {"validations", validations_json(run)},
          {"problems", run.problems}};
}

Json against_json(const AgainstFirst& other, size_t run) {
  return {{"run", label(run)},
          {"against", label(0)},
          {"common_steps", other.identity.common_steps},
          {"same_until_step", other.identity.same_until},
          {"first_other_step",
           other.identity.first_other > 0 ? Json(other.identity.first_other) : Json()},
          {"fields_that_differ_there", other.identity.fields},
          {"loss_comparable", other.caveats.loss_comparable},
          {"loss", other.loss.to_json()},
          {"expected_acceptance", other.acceptance.to_json()},
          {"caveats", other.caveats.texts}};
}

/// A run of which nothing but the reason is known comes first.
std::time_t written(const Listed& listed) {
  return listed.run ? listed.run->written : 0;
}

}  // namespace

std::string label(size_t run) {
  return std::string(1, static_cast<char>('A' + run));
}

Comparison compare(std::vector<TrainingRun> runs, std::optional<Axis> axis) {
  if (runs.size() > kMostCompared) {
    fail("runs: expected at most {} to compare, got {}\n  hint: --list lists them", kMostCompared,
         runs.size());
  }
  for (const TrainingRun& run : runs) {
    if (axis != Axis::kAnchors || !run.has_gaps) continue;
    fail(
        "{}: steps are missing in metrics.jsonl, so curves cannot be aligned by anchors\n"
        "  hint: --by step",
        run.path.string());
  }
  Comparison out;
  out.runs = std::move(runs);
  out.settings = compare_settings(out.runs);
  out.axis = axis.value_or(fitting_axis(out.runs));
  for (size_t i = 1; i < out.runs.size(); ++i) {
    const TrainingRun &a = out.runs[0], &b = out.runs[i];
    out.others.push_back({compare_bits(a, b), find_parting(a, b, out.axis, &Step::loss),
                          find_parting(a, b, out.axis, &Step::expected_acceptance),
                          caveats(out.settings.differing, 0, i)});
  }
  out.curve = smooth(out.runs, out.axis, kCurveRows);
  return out;
}

Json Comparison::to_json() const {
  Json json = {{"axis", axis_name(axis)},
               {"runs", Json::array()},
               {"settings_that_differ", Json::array()},
               {"settings_the_same", settings.num_same},
               {"comparisons", Json::array()},
               {"curve", Json::array()}};
  for (size_t i = 0; i < runs.size(); ++i) {
    Json run = run_json(runs[i]);
    run["run"] = label(i);
    json["runs"].push_back(std::move(run));
  }
  for (const Setting& setting : settings.differing) {
    json["settings_that_differ"].push_back(setting.to_json());
  }
  for (size_t i = 0; i < others.size(); ++i) {
    json["comparisons"].push_back(against_json(others[i], i + 1));
  }
  for (const CurveWindow& window : curve) {
    Json points = Json::array();
    for (const Point& point : window.points) points.push_back(point.to_json());
    json["curve"].push_back({{"after", window.begin}, {"to", window.end}, {"points", points}});
  }
  return json;
}

std::vector<Listed> list_runs(const std::vector<std::filesystem::path>& folders) {
  std::vector<Listed> list;
  for (const auto& folder : folders) {
    try {
      list.push_back({folder, read_run(folder), ""});
    } catch (const Error& error) {
      list.push_back({folder, std::nullopt, error.what()});
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Listed& a, const Listed& b) { return written(a) < written(b); });
  return list;
}

Json list_json(const std::vector<Listed>& list) {
  Json runs = Json::array();
  for (const Listed& listed : list) {
    runs.push_back(listed.run ? run_json(*listed.run)
                              : Json{{"path", listed.path.string()},
                                     {"state", "damaged"},
                                     {"problems", {listed.problem}}});
  }
  return {{"runs", runs}};
}

}  // namespace dflash::runs
