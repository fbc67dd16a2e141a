// The quickstart's last step and its summary.
#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/stop.h"
#include "cli/drafters.h"
#include "cli/quickstart.h"
#include "eval/evaluate.h"

namespace dflash::cli {
namespace {

constexpr int64_t kBatch = 32;

/// Batch 1 measures speeds; a batch gives tau and equality of the texts in a fraction of the time.
eval::Report evaluate_set(QuickstartRun& run, decode::Proposer& proposer,
                          const std::filesystem::path& file, int64_t limit, int64_t batch) {
  eval::EvalOptions options;
  options.batch = batch;
  options.max_new_tokens = run.options.short_form ? 32 : run.options.max_new_tokens;
  options.require_acceptance = !run.options.short_form;  // 20 steps teach nothing yet
  options.should_stop = [] { return stop_requested(); };
  const auto tasks = eval::read_tasks(file, run.options.short_form ? 4 : limit);
  std::unique_ptr<Progress> progress;
  options.on_task = [&](int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>(tasks.name, "answers", total);
    progress->update(done);
  };
  auto report = eval::evaluate(*run.model.target, *run.model.tokenizer, run.model.chat,
                               {{"drafter", &proposer}}, tasks, options);
  if (progress) progress->finish();
  return report;
}

const eval::ArmReport& arm_named(const eval::Report& report, const std::string& name) {
  for (const auto& arm : report.arms) {
    if (arm.name == name) return arm;
  }
  fail("the evaluation has no arm '{}'", name);
}

void summarise(Json& summary, const eval::Report& report, const std::string& suffix) {
  const auto& drafter = arm_named(report, "drafter");
  const auto& lookup = arm_named(report, "prompt lookup");
  summary["tau_" + suffix] = drafter.counts.tau();
  summary["tau_" + suffix + "_without_loops"] = drafter.without_loops.tau();
  summary["tau_lookup_" + suffix] = lookup.counts.tau();
  summary["looping_" + suffix] = report.num_looping;
  summary["prompts_" + suffix] = report.num_tasks;
}

void summarise_speed(Json& summary, const eval::Report& report) {
  const auto& drafter = arm_named(report, "drafter");
  summary["plain_tok_s"] = report.plain.speed.decode_rate();
  summary["spec_tok_s"] = drafter.speed.decode_rate();
  summary["lookup_tok_s"] = arm_named(report, "prompt lookup").speed.decode_rate();
  summary["speedup_vs_plain"] = report.speedup(drafter);
  summary["tau_timed"] = drafter.counts.tau();
  summary["timed_prompts"] = report.num_tasks;
  summary["speedup_over_tau"] =
      drafter.counts.tau() > 0 ? report.speedup(drafter) / drafter.counts.tau() : 0;
}

/// Token for token, ties not excused.
bool identical(const eval::Report& report) {
  return std::all_of(report.arms.begin(), report.arms.end(),
                     [](const auto& arm) { return arm.differences.empty(); });
}

double number(const Json& summary, const char* key) {
  return summary.contains(key) && summary[key].is_number() ? summary[key].get<double>() : 0;
}

}  // namespace

bool compare(QuickstartRun& run) {
  const std::filesystem::path folder = run.summary.at("drafter").get<std::string>();
  const auto proposer =
      decode::make_draft_proposer(load_drafter(folder, run.model), *run.model.target);
  const auto heldout_file = jobs::prompts_folder() / "heldout.jsonl";
  const auto heldout = evaluate_set(run, *proposer, heldout_file, 0, kBatch);
  const auto humaneval = evaluate_set(run, *proposer, jobs::assets_folder() / "HumanEval.jsonl",
                                      run.options.humaneval_prompts, kBatch);
  const auto timed = evaluate_set(run, *proposer, heldout_file, run.options.timed_prompts, 1);
  if (stop_requested()) return false;
  for (const auto* report : {&heldout, &humaneval, &timed}) log_info("\n{}", report->to_table());
  write_json(run.folder / "eval.json", {{"heldout", heldout.to_json()},
                                        {"humaneval", humaneval.to_json()},
                                        {"timed", timed.to_json()}});
  summarise(run.summary, heldout, "heldout");
  summarise(run.summary, humaneval, "humaneval");
  summarise_speed(run.summary, timed);
  run.summary["text_identical"] = identical(heldout) && identical(humaneval) && identical(timed);
  return true;
}

std::string summary_text(const Json& summary) {
  const auto value = [&](const char* key) { return number(summary, key); };
  std::string text = "\nquickstart summary\n";
  text += fmt::format("  data       {:.0f} answers, {:.0f} answer tokens\n", value("answers"),
                      value("answer_tokens"));
  text += fmt::format("  training   {:.1f} min, {:.0f} anchors, {:.0f} anchors/s\n",
                      value("train_minutes"), value("anchors"), value("anchors_per_s"));
  text += fmt::format(
      "  tau        held-out {:.2f} (prompt lookup {:.2f}), HumanEval {:.2f} (prompt "
      "lookup {:.2f})\n",
      value("tau_heldout"), value("tau_lookup_heldout"), value("tau_humaneval"),
      value("tau_lookup_humaneval"));
  text += fmt::format(
      "  speed      plain {:.1f} tok/s, with the drafter {:.1f} tok/s: {:.2f} times "
      "({:.2f} of tau)\n",
      value("plain_tok_s"), value("spec_tok_s"), value("speedup_vs_plain"),
      value("speedup_over_tau"));
  text += fmt::format("  text       {}\n", summary.value("text_identical", false)
                                               ? "the same as without the drafter, token for token"
                                               : "DIFFERS from plain decoding");
  text += fmt::format("  total      {:.1f} min\n", value("total_minutes"));
  text += fmt::format("  try it     dflash-cpp chat --drafter {}\n", summary.value("drafter", ""));
  return text;
}

}  // namespace dflash::cli
