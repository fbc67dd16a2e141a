// quickstart: the whole way on the embedded default target, with one summary at the end.
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/output.h"
#include "cli/checks.h"
#include "cli/quickstart.h"
#include "cli/verbs.h"

namespace dflash::cli {
namespace fs = std::filesystem;
namespace {

/// Removes what the quickstart writes, by name: the folder may hold other things.
void remove_results(const fs::path& folder) {
  for (const char* name : {"answers.jsonl", "answers.jsonl.json", "dataset", "features", "run",
                           "eval.json", "progress.json", "summary.json", "config.toml"}) {
    fs::remove_all(folder / name);
  }
}

/// What a result depends on, beside the machine.
Json options_json(const QuickstartOptions& options) {
  return {{"minutes", options.minutes},    {"max_new", options.max_new_tokens},
          {"short", options.short_form},   {"target", options.target.path},
          {"dtype", options.target.dtype}, {"limit", options.limit}};
}

double total_seconds(const Json& summary) {
  double seconds = 0;
  for (const auto& [key, value] : summary.items()) {
    if (key.ends_with("_seconds")) seconds += value.get<double>();
  }
  return seconds;
}

}  // namespace

int run_quickstart(int argc, char** argv) {
  VerbParser parser("quickstart",
                    "A real target answers prompts, a drafter is trained on the answers, and the "
                    "same kind of answers come out faster.");
  QuickstartRun run;
  auto& options = run.options;
  bool json = false;
  auto& app = parser.app();
  options.target.add(app);
  app.add_option("--minutes", options.minutes, "of training; steps are set to fit")
      ->check(CLI::Range(0.1, 10000.0));
  app.add_option("--out", options.out, "folder of all results");
  app.add_option("--max-new", options.max_new_tokens, "tokens of an answer")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--limit", options.limit,
                 "held-out prompts, and HumanEval problems, to compare on; one at a time")
      ->check(integer_from(1, 164));
  app.add_flag("--short", options.short_form, "8 prompts and 20 steps: shows only that it works");
  app.add_flag("--fresh", options.fresh, "start over: removes what an earlier call left in --out")
      ->configurable(false);  // the file of options must not start over
  app.add_flag("--json", json, "the summary as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;

  run.folder = options.out;
  claim_folder(run.folder, "progress.json");
  const auto lock = lock_folder(run.folder);
  if (options.fresh) remove_results(run.folder);
  const Json wanted = options_json(options);
  run.summary = earlier_results(run.folder, wanted);
  if (run.summary.contains("total_minutes")) {
    log_info("{} is complete; --fresh starts over", run.folder.string());
  } else {
    run.summary["options"] = wanted;
    write_json(run.folder / "progress.json", run.summary);
    parser.save_options(run.folder);
    run.model = options.target.load();
    run_steps(run);
    run.summary["total_minutes"] = total_seconds(run.summary) / 60;
    write_json(run.folder / "summary.json", run.summary);
  }
  if (json) {
    print_json(run.summary);
  } else {
    fmt::print("{}", summary_text(run.summary));
  }
  if (!run.summary.value("text_identical", false)) fail("a text differs from plain decoding's");
  return 0;
}

}  // namespace dflash::cli
