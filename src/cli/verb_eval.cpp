// eval: drafters side by side on task sets, beside plain decoding and prompt lookup.
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/stop.h"
#include "cli/drafters.h"
#include "cli/verbs.h"
#include "eval/evaluate.h"

namespace dflash::cli {
namespace {

/// "humaneval" and "heldout" are the bundled sets; anything else is a file.
std::filesystem::path task_file(const std::string& name) {
  if (name == "humaneval") return jobs::assets_folder() / "HumanEval.jsonl";
  if (name == "heldout") return jobs::prompts_folder() / "heldout.jsonl";
  return name;
}

/// Drafters with the proposers that the evaluation borrows.
struct Arms {
  std::vector<std::unique_ptr<decode::Proposer>> owned;
  std::vector<eval::Drafter> drafters;

  void add(const std::string& path, const jobs::Model& model, int64_t max_proposals) {
    owned.push_back(decode::make_draft_proposer(load_drafter(path, model), *model.target,
                                                {.max_proposals = max_proposals}));
    drafters.push_back({path, owned.back().get()});
  }
};

eval::Report run_set(const jobs::Model& model, const Arms& arms, const std::string& set,
                     int64_t limit, eval::EvalOptions options) {
  const auto tasks = eval::read_tasks(task_file(set), limit);
  std::unique_ptr<Progress> progress;
  options.on_task = [&](int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("eval " + tasks.name, "answers", total);
    progress->update(done);
  };
  options.should_stop = [] { return stop_requested(); };
  auto report =
      eval::evaluate(*model.target, *model.tokenizer, model.chat, arms.drafters, tasks, options);
  if (progress) progress->finish();
  return report;
}

}  // namespace

int run_eval(int argc, char** argv) {
  VerbParser parser("eval", "tau, acceptance per slot and speed of drafters on task sets.");
  TargetOptions target;
  SamplingOptions sampling;
  eval::EvalOptions options;
  std::vector<std::string> drafters, sets = {"heldout", "humaneval"};
  int64_t limit = 0, max_proposals = 0;
  std::string out;
  bool no_lookup = false, no_plain = false, json = false;
  auto& app = parser.app();
  target.add(app);
  sampling.add(app);
  app.add_option("--drafter", drafters, "drafter or run folder; several are compared");
  app.add_option("--tasks", sets, "heldout, humaneval, or jsonl files")->delimiter(',');
  app.add_option("--limit", limit, "first tasks of each set (0: all)");
  app.add_option("--batch", options.batch, "1: speeds are measured; more: tau only, quick")
      ->check(CLI::Range(1, 4096));
  app.add_option("--draft-tokens", max_proposals, "proposals a pass at most (0: block size - 1)");
  app.add_flag("--no-lookup", no_lookup, "without the prompt-lookup baseline");
  app.add_flag("--no-plain", no_plain, "without plain decoding: tau only, texts not compared");
  app.add_option("--out", out, "also write the report to this JSON file (empty: none)");
  app.add_flag("--json", json, "the report as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;

  options.max_new_tokens = sampling.max_new_tokens;
  options.sampling = sampling.sampling;
  options.with_lookup = !no_lookup;
  options.with_plain = !no_plain;
  const auto model = target.load();
  Arms arms;
  for (const std::string& path : drafters) arms.add(path, model, max_proposals);
  Json reports = Json::array();
  bool lossless = true;
  for (const std::string& set : sets) {
    const auto report = run_set(model, arms, set, limit, options);
    reports.push_back(report.to_json());
    if (!json) fmt::print("{}\n", report.to_table());
    lossless = lossless && report.lossless();
    if (stop_requested()) break;
  }
  if (!out.empty()) {
    write_json(out, {{"sets", reports}});
    parser.save_options(out);
  }
  if (json) print_json({{"sets", reports}});
  if (!lossless) fail("a text differs from plain decoding's; see the report");
  return 0;
}

}  // namespace dflash::cli
