// quickstart: the whole way on the embedded default target, with one summary at the end.
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/quickstart.h"
#include "cli/verbs.h"

namespace dflash::cli {
namespace fs = std::filesystem;
namespace {

/// The summary of an earlier, finished call; null when there is none.
Json finished_summary(const fs::path& path) {
  return fs::exists(path) ? read_json(path) : Json();
}

/// Removes what the quickstart writes, by name: the folder may hold other things.
void remove_results(const fs::path& folder) {
  for (const char* name : {"answers.jsonl", "answers.jsonl.json", "dataset", "features", "run",
                           "eval.json", "progress.json", "summary.json", "config.toml"}) {
    fs::remove_all(folder / name);
  }
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
  app.add_option("--max-new", options.max_new_tokens, "tokens of an answer");
  app.add_option("--timed-prompts", options.timed_prompts, "held-out prompts that are timed");
  app.add_option("--humaneval-prompts", options.humaneval_prompts, "of the 164 problems");
  app.add_flag("--short", options.short_form, "8 prompts and 20 steps: shows only that it works");
  app.add_flag("--fresh", options.fresh, "start over: removes what an earlier call left in --out");
  app.add_flag("--json", json, "the summary as JSON on stdout");
  if (auto code = parser.parse(argc, argv)) return *code;

  run.folder = options.out;
  const fs::path summary_path = run.folder / "summary.json";
  if (options.fresh) remove_results(run.folder);
  run.summary = finished_summary(summary_path);
  if (run.summary.is_null()) {
    make_folder(run.folder);
    const fs::path progress = run.folder / "progress.json";
    run.summary = fs::exists(progress) ? read_json(progress) : Json::object();
    const Json wanted = {{"minutes", options.minutes},
                         {"max_new", options.max_new_tokens},
                         {"short", options.short_form},
                         {"target", options.target.path}};
    if (run.summary.value("options", wanted) != wanted) {
      fail(
          "{} was begun with other options: {}\n  hint: the same options go on, --fresh starts "
          "over, --out takes another folder",
          run.folder.string(), run.summary["options"].dump());
    }
    run.summary["options"] = wanted;
    parser.save_options(run.folder);
    run.model = options.target.load();
    run_steps(run);
    double seconds = 0;
    for (const auto& [key, value] : run.summary.items()) {
      if (key.ends_with("_seconds")) seconds += value.get<double>();
    }
    run.summary["total_minutes"] = seconds / 60;
    write_json(summary_path, run.summary);
  } else {
    log_info("{} is complete; --fresh starts over", run.folder.string());
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
