// Which settings of runs differ: run.json's values under flat names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "runs/run.h"

namespace dflash::runs {

/// Every setting of a run by name: "--lr" (an option of its command line), "options.optimizer.lr"
/// (what it resolved to), "drafter.hidden_size", "machine.threads". Lists of plain values are one
/// value. What concerns the output alone (--out, --quiet, --json, --resume) is left out.
std::map<std::string, Json> flat_settings(const TrainingRun& run);

struct Setting {
  std::string name;
  std::vector<std::optional<Json>> values;  // one a run; nothing: that run does not have it

  bool differs(size_t a, size_t b) const { return values[a] != values[b]; }
  /// A list of one a run, null where it is absent.
  Json to_json() const;
};

struct SettingsComparison {
  std::vector<Setting> differing;  // options first, then by name
  size_t num_same = 0;
};

/// A resolved value that only repeats an option (same last name, same values) is left out.
SettingsComparison compare_settings(const std::vector<TrainingRun>& runs);

/// Why figures of run `b` must not be compared with those of run `a`, a sentence each.
struct Caveats {
  bool loss_comparable = true;
  std::vector<std::string> texts;
};
Caveats caveats(const std::vector<Setting>& differing, size_t a, size_t b);

}  // namespace dflash::runs
