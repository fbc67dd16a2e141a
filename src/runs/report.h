// Runs side by side, and lists of runs: tables for a terminal, JSON for programs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "runs/curves.h"
#include "runs/run.h"
#include "runs/settings.h"

namespace dflash::runs {

/// One run against the first.
struct AgainstFirst {
  Identity identity;
  Parting loss, acceptance;  // second minus first
  Caveats caveats;
};

struct Comparison {
  std::vector<TrainingRun> runs;  // shown as A, B, ...
  SettingsComparison settings;
  Axis axis = Axis::kStep;
  std::vector<AgainstFirst> others;  // of runs 1, 2, ...
  std::vector<CurveWindow> curve;

  Json to_json() const;
  std::string to_table() const;
};

/// "A", "B", ...
std::string label(size_t run);
constexpr size_t kMostCompared = 26;

/// One run is shown alone. Without `axis` the fitting one. Error: more than kMostCompared.
Comparison compare(std::vector<TrainingRun> runs, std::optional<Axis> axis);

/// A folder of a list; without `run` it could not be read.
struct Listed {
  std::filesystem::path path;
  std::optional<TrainingRun> run;
  std::string problem;
};

/// Reads every folder; one that is damaged is listed with the reason. Oldest first.
std::vector<Listed> list_runs(const std::vector<std::filesystem::path>& folders);
std::string list_table(const std::vector<Listed>& list);
Json list_json(const std::vector<Listed>& list);

}  // namespace dflash::runs
