// The quickstart's last step: every way of drafting on the same prompts, one at a time, so that
// tau and speed of a row come from the same texts.
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

constexpr const char* kOwn = "your drafter";

/// Proposers with their names in the table.
struct Arms {
  std::vector<std::unique_ptr<decode::Proposer>> owned;
  std::vector<eval::Drafter> drafters;

  void add(const std::string& name, const std::filesystem::path& path, const jobs::Model& model) {
    add_kind("drafter", name, path, model);
    add_kind("auto", name + ", combined", path, model);
  }

 private:
  void add_kind(const std::string& kind, const std::string& name, const std::filesystem::path& path,
                const jobs::Model& model) {
    owned.push_back(make_proposer(kind, path, model, /*max_proposals=*/0));
    drafters.push_back({name, owned.back().get()});
  }
};

eval::Report evaluate_set(QuickstartRun& run, const Arms& arms, const std::string& set) {
  eval::EvalOptions options;
  options.max_new_tokens = run.options.short_form ? 32 : run.options.max_new_tokens;
  options.require_acceptance = false;  // 20 steps teach nothing yet; for more see check_learned
  options.should_stop = [] { return stop_requested(); };
  const auto tasks =
      eval::read_tasks(task_file(set), run.options.short_form ? 2 : run.options.limit);
  std::unique_ptr<Progress> progress;
  options.on_task = [&](int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>(set, "answers", total);
    const int64_t ways = total / static_cast<int64_t>(tasks.tasks.size());
    progress->update(done, fmt::format("every prompt {} ways", ways));
  };
  auto report = eval::evaluate(*run.model.target, *run.model.tokenizer, run.model.chat,
                               arms.drafters, tasks, options);
  if (progress) progress->finish();
  return report;
}

Json arm_json(const eval::Report& report, const eval::ArmReport& arm, const std::string& name) {
  return {{"name", name},
          {"tau", arm.counts.tau()},
          {"tau_without_loops", arm.without_loops.tau()},
          {"tok_s", arm.speed.decode_rate()},
          {"speedup", report.speedup(arm)}};
}

/// In the order of the table: what costs no training first.
Json set_json(const eval::Report& report) {
  Json arms = Json::array();
  arms.push_back(arm_json(report, report.plain, "plain decoding"));
  arms.back()["tau"] = arms.back()["tau_without_loops"] = 1.0;
  for (const bool drafters : {false, true}) {
    for (const auto& arm : report.arms) {
      if (arm.is_drafter == drafters) arms.push_back(arm_json(report, arm, arm.name));
    }
  }
  return {{"prompts", report.num_tasks}, {"looping", report.num_looping}, {"arms", arms}};
}

/// Token for token, ties not excused.
bool identical(const eval::Report& report) {
  return std::all_of(report.arms.begin(), report.arms.end(),
                     [](const auto& arm) { return arm.differences.empty(); });
}

/// Error when minutes of training taught nothing at all: then something is wrong.
void check_learned(const eval::Report& report, const std::string& drafter) {
  for (const auto& arm : report.arms) {
    if (arm.name != kOwn || arm.counts.passes() == 0 || arm.counts.tau() > 1.0) continue;
    fail(
        "{}: tau of your drafter is exactly 1: no draft was ever accepted\n"
        "  hint: more --minutes, or 'dflash-cpp doctor --drafter {}'",
        report.tasks, drafter);
  }
}

}  // namespace

bool compare(QuickstartRun& run) {
  const std::string own = run.summary.at("drafter").get<std::string>();
  Arms arms;
  const std::string bundled = take_bundled_drafter(run.options.target);
  if (!bundled.empty()) arms.add("bundled drafter", bundled, run.model);
  arms.add(kOwn, own, run.model);
  run.summary["bundled_drafter"] = bundled;
  Json sets = Json::object(), details = Json::object();
  bool same = true;
  for (const char* set : {"heldout", "humaneval"}) {
    const auto report = evaluate_set(run, arms, set);
    if (stop_requested()) return false;
    sets[set] = set_json(report);
    details[set] = report.to_json();
    same = same && identical(report);
    if (!run.options.short_form) check_learned(report, own);
  }
  write_json(run.folder / "eval.json", details);
  run.summary["comparison"] = sets;
  run.summary["text_identical"] = same;
  return true;
}

}  // namespace dflash::cli
