// runs: lists training runs, or compares them side by side.
#include <optional>

#include "base/files.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "runs/report.h"

namespace dflash::cli {
namespace fs = std::filesystem;
namespace {

struct Chosen {
  std::vector<fs::path> folders;
  bool single = true;  // every path meant one run
};

Chosen choose(const std::vector<std::string>& paths) {
  Chosen chosen;
  for (const std::string& path : paths) {
    const auto found = runs::find_runs(path);
    chosen.single = chosen.single && found.size() == 1;
    chosen.folders.insert(chosen.folders.end(), found.begin(), found.end());
  }
  return chosen;
}

std::optional<runs::Axis> parse_axis(const std::string& by) {
  if (by == "step") return runs::Axis::kStep;
  if (by == "anchors") return runs::Axis::kAnchors;
  return std::nullopt;
}

}  // namespace

int run_runs(int argc, char** argv) {
  VerbParser parser("runs", "Lists training runs, or compares them side by side.");
  std::vector<std::string> paths;
  std::string by = "auto", out;
  bool list = false, json = false;
  auto& app = parser.app();
  app.add_option("paths", paths,
                 "run folders: several are compared; a folder with several runs is listed")
      ->required();
  app.add_option("--by", by,
                 "what curves are aligned by (auto: step, or anchors where steps differ in size)")
      ->check(CLI::IsMember({"auto", "step", "anchors"}));
  app.add_flag("--list", list, "list the runs, whatever the paths are");
  app.add_option("--out", out, "also write the report to this JSON file (empty: none)");
  app.add_flag("--json", json, "the report as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;

  const Chosen chosen = choose(paths);
  Json report;
  std::string table;
  if (list || !chosen.single) {
    const auto listed = runs::list_runs(chosen.folders);
    report = runs::list_json(listed);
    table = runs::list_table(listed);
  } else {
    std::vector<runs::TrainingRun> read;
    for (const fs::path& folder : chosen.folders) read.push_back(runs::read_run(folder));
    const auto comparison = runs::compare(std::move(read), parse_axis(by));
    report = comparison.to_json();
    table = comparison.to_table();
  }
  if (!out.empty()) {
    write_json(out, report);
    parser.save_options(out);
  }
  if (json) {
    print_json(report);
  } else {
    fmt::print("{}", table);
  }
  return 0;
}

}  // namespace dflash::cli
