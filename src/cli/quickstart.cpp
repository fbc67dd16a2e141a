#include "cli/quickstart.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/timer.h"
#include "data/prepare.h"
#include "jobs/capture.h"
#include "jobs/regenerate.h"

namespace dflash::cli {
namespace {

constexpr int64_t kTaps = 5;
constexpr int64_t kDraftVocab = 8192;
constexpr int64_t kSamples = 8;  // answers a prompt at most: one greedy, the others sampled

/// Seconds that earlier, stopped calls spent in a step.
double spent_before(const QuickstartRun& run, const std::string& name) {
  return run.summary.value("unfinished", Json::object()).value(name, 0.0);
}

struct Step {
  std::string name, text;
  const char* result;            // in the folder, once the step is done
  bool (*work)(QuickstartRun&);  // false: a signal came before its end
};

/// Error when the result of a step that is done has been taken away: later steps would fail late,
/// or go on with another one's.
bool is_done(const QuickstartRun& run, const Step& step) {
  if (!run.summary.contains(step.name + "_seconds")) return false;
  if (std::filesystem::exists(run.folder / step.result)) return true;
  fail("{}: missing, though step '{}' is done\n  hint: --fresh starts over",
       (run.folder / step.result).string(), step.name);
}

/// Runs a step once: its numbers are kept in progress.json, so that a later call skips it. The
/// time of a call that was stopped is kept too and counts in the end.
void run_step(QuickstartRun& run, const Step& step) {
  const bool done = is_done(run, step);
  log_info("\n{}{}", step.text, done ? ": done before" : "");
  if (done) return;
  Timer timer;
  const bool finished = step.work(run);
  const double seconds = spent_before(run, step.name) + timer.seconds();
  if (finished) {
    run.summary.erase("unfinished");
    run.summary[step.name + "_seconds"] = seconds;
  } else {
    run.summary["unfinished"] = {{step.name, seconds}};
  }
  write_json(run.folder / "progress.json", run.summary);
  if (!finished || stop_requested()) {
    fail("stopped in step '{}'; the same command goes on from here", step.name);
  }
}

/// Adds this call's answers to those of calls that were stopped.
void count_answers(Json& summary, const jobs::RegenerateReport& report) {
  const Json before = summary.value("answers_made", Json::object());
  const auto tokens = before.value("tokens", int64_t{0}) + report.tokens;
  const double seconds = before.value("in_s", 0.0) + report.seconds;
  summary["answers_made"] = {{"tokens", tokens}, {"in_s", seconds}};
  summary["answer_tok_s"] = static_cast<double>(tokens) / std::max(seconds, 1e-9);
  summary["answers"] = report.answers + report.resumed;
}

bool make_answers(QuickstartRun& run) {
  const auto& options = run.options;
  const auto file =
      jobs::read_prompts(jobs::prompts_folder() / "train.jsonl", options.short_form ? 8 : 0);
  jobs::RegenerateOptions regenerate;
  regenerate.out = run.folder / "answers.jsonl";
  regenerate.max_new_tokens = options.short_form ? 48 : options.max_new_tokens;
  regenerate.samples = options.short_form ? 1 : kSamples;
  regenerate.temperature = 0.7;
  regenerate.batch = 128;
  if (options.answer_seconds() > 0) {  // 0 would be no limit
    regenerate.max_seconds = std::max(options.answer_seconds() - spent_before(run, "answers"), 0.1);
  }
  const auto report = jobs::regenerate(run.model, file.prompts, regenerate);
  count_answers(run.summary, report);
  if (stop_requested() && report.stopped) return false;
  if (report.answers + report.resumed == 0) fail("no answer was finished in the time given");
  return true;
}

bool make_dataset(QuickstartRun& run) {
  data::PrepareOptions options;
  options.max_tokens = 1024;
  options.held_out = {jobs::assets_folder() / "HumanEval.jsonl",
                      jobs::prompts_folder() / "heldout.jsonl"};
  options.vocab_size = run.model.target->config().vocab_size;
  const auto prepared =
      data::prepare({run.folder / "answers.jsonl"}, *run.model.tokenizer, &run.model.chat, options);
  data::save_dataset(run.folder / "dataset", prepared.dataset);
  log_info("{}", prepared.report.text());
  run.summary["answer_tokens"] = prepared.report.supervised;
  run.summary["documents"] = prepared.report.documents;
  return true;
}

bool make_features(QuickstartRun& run) {
  jobs::CaptureOptions options;
  options.out = run.folder / "features";
  options.taps = target::default_taps(run.model.target->config().num_layers, kTaps);
  const auto dataset = data::load_dataset(run.folder / "dataset");
  const auto report = jobs::capture(*run.model.target, dataset, options);
  run.summary["captured_tokens"] = dataset.num_tokens();
  return !report.stopped;
}

bool make_drafter(QuickstartRun& run) {
  jobs::TrainingOptions options;
  options.dataset = run.folder / "dataset";
  options.features = run.folder / "features";
  options.out = run.folder / "run";
  options.resume = true;
  options.drafter.num_layers = 2;
  options.drafter.block_size = 8;
  options.drafter.draft_vocab = kDraftVocab;
  options.train.validate_every = 0;
  if (run.options.short_form) {
    options.train.total_steps = 20;
    options.train.anchors_per_step = 64;
  } else {
    options.max_seconds = run.options.minutes * 60;
  }
  const auto result = jobs::train_drafter(run.model, options, {});
  if (!result.finished) return false;
  run.summary["steps"] = result.steps;
  run.summary["train_minutes"] = result.seconds / 60;
  run.summary["anchors_per_s"] = result.anchors_per_second;
  run.summary["anchors"] = result.anchors_per_second * result.seconds;
  run.summary["drafter"] = (result.last_checkpoint / "model").string();
  return true;
}

/// What later steps read of it has the types we wrote.
bool is_ours(const Json& results) {
  if (!results.is_object() || !results.value("options", Json::object()).is_object()) return false;
  const Json unfinished = results.value("unfinished", Json::object());
  const auto numbers = [](const Json& object) {
    return std::all_of(object.begin(), object.end(), [](const Json& v) { return v.is_number(); });
  };
  if (!unfinished.is_object() || !numbers(unfinished)) return false;
  const Json made = results.value("answers_made", Json::object());
  if (!made.is_object() || !numbers(made)) return false;
  for (const auto& [key, value] : results.items()) {
    if (key.ends_with("_seconds") && !value.is_number()) return false;
  }
  return !results.contains("train_seconds") || results.value("drafter", Json()).is_string();
}

}  // namespace

Json earlier_results(const std::filesystem::path& folder, const Json& wanted) {
  for (const char* name : {"summary.json", "progress.json"}) {
    const auto path = folder / name;
    if (!std::filesystem::exists(path)) continue;
    const Json found = read_json(path);
    if (!is_ours(found)) {
      fail("{}: not as the quickstart writes it\n  hint: --fresh starts over", path.string());
    }
    const Json before = found.value("options", Json::object());
    std::vector<std::string> changed;
    for (const auto& [key, value] : wanted.items()) {
      const Json was = before.value(key, value);
      if (was != value)
        changed.push_back(fmt::format("{} {} (now {})", key, was.dump(), value.dump()));
    }
    if (changed.empty()) return found;
    fail(
        "{} was made with other options: {}\n  hint: the same options go on, --fresh starts over, "
        "--out takes another folder",
        folder.string(), fmt::join(changed, ", "));
  }
  return Json::object();
}

void run_steps(QuickstartRun& run) {
  const std::vector<Step> steps = {
      {"answers", "[1/5] the target answers the bundled prompts", "answers.jsonl", make_answers},
      {"dataset", "[2/5] the answers become a dataset", "dataset/dataset.json", make_dataset},
      {"features", "[3/5] the target's hidden states at every token", "features/features.json",
       make_features},
      {"train", "[4/5] a drafter is trained on them", "run/run.json", make_drafter},
      {"compare", "[5/5] the same answers, plain and with drafts of every kind", "eval.json",
       compare},
  };
  for (const Step& step : steps) run_step(run, step);
}

}  // namespace dflash::cli
