#include "cli/quickstart.h"

#include <algorithm>

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

/// Runs a step once: its numbers are kept in progress.json, so that a later call skips it. The
/// time of a call that was stopped is kept too and counts in the end.
void run_step(QuickstartRun& run, const std::string& name, const std::string& text,
              void (*step)(QuickstartRun&)) {
  const bool done = run.summary.contains(name + "_seconds");
  log_info("\n{}{}", text, done ? ": done before" : "");
  if (done) return;
  Timer timer;
  step(run);
  const double seconds = spent_before(run, name) + timer.seconds();
  if (stop_requested()) {
    run.summary["unfinished"] = {{name, seconds}};
  } else {
    run.summary.erase("unfinished");
    run.summary[name + "_seconds"] = seconds;
  }
  write_json(run.folder / "progress.json", run.summary);
  if (stop_requested()) fail("stopped in step '{}'; the same command goes on from here", name);
}

void make_answers(QuickstartRun& run) {
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
  if (report.answers + report.resumed == 0) fail("no answer was finished in the time given");
  run.summary["answers"] = report.answers + report.resumed;
  if (report.tokens > 0) {
    run.summary["answer_tok_s"] = static_cast<double>(report.tokens) / report.seconds;
  }
}

void make_dataset(QuickstartRun& run) {
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
}

void make_features(QuickstartRun& run) {
  jobs::CaptureOptions options;
  options.out = run.folder / "features";
  options.taps = target::default_taps(run.model.target->config().num_layers, kTaps);
  const auto dataset = data::load_dataset(run.folder / "dataset");
  jobs::capture(*run.model.target, dataset, options);
  run.summary["captured_tokens"] = dataset.num_tokens();
}

void make_drafter(QuickstartRun& run) {
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
  if (!result.finished) return;
  run.summary["steps"] = result.steps;
  run.summary["train_minutes"] = result.seconds / 60;
  run.summary["anchors_per_s"] = result.anchors_per_second;
  run.summary["anchors"] = result.anchors_per_second * result.seconds;
  run.summary["drafter"] = (result.last_checkpoint / "model").string();
}

}  // namespace

void run_steps(QuickstartRun& run) {
  run_step(run, "answers", "[1/5] the target answers the bundled prompts", make_answers);
  run_step(run, "dataset", "[2/5] the answers become a dataset", make_dataset);
  run_step(run, "features", "[3/5] the target's hidden states at every token", make_features);
  run_step(run, "train", "[4/5] a drafter is trained on them", make_drafter);
  run_step(run, "compare", "[5/5] the same answers, plain and with the drafter", compare);
}

}  // namespace dflash::cli
