// The steps of the quickstart: prompts -> answers -> dataset -> features -> drafter -> comparison.
// progress.json says which steps are done; these are not done again.
#pragma once

#include <filesystem>
#include <string>

#include "cli/options.h"
#include "jobs/training.h"

namespace dflash::cli {

struct QuickstartOptions {
  TargetOptions target;
  std::string out = "quickstart";
  double minutes = 6;  // of training; answers get about half as much and their features the rest
  bool fresh = false;  // remove what an earlier call left
  bool short_form = false;  // 8 prompts, 20 steps: shows that the way works, not what it reaches
  int64_t limit = 8;        // held-out prompts, and HumanEval problems, to compare on
  int64_t max_new_tokens = 160;

  double answer_seconds() const { return short_form ? 0 : minutes * 60 * 0.52; }
};

/// Everything a later step needs from an earlier one, and what the summary says.
struct QuickstartRun {
  QuickstartOptions options;
  std::filesystem::path folder;
  jobs::Model model;
  Json summary = Json::object();
};

/// What an earlier call left in the folder: the summary of one that came to its end, else how far
/// it got; empty when there was none. Errors: not ours, or made with other options than `wanted`.
Json earlier_results(const std::filesystem::path& folder, const Json& wanted);

/// All steps that are not done yet. Errors: a signal stopped one (the same call goes on there), or
/// the result of one that is done is gone.
void run_steps(QuickstartRun& run);

/// The last step: held-out prompts and HumanEval, plain, by prompt lookup, with the bundled drafter
/// where it fits, and with the one just trained; each drafter alone and combined with lookup. False
/// when a signal stopped it. Error: the drafter learned nothing (not in the short form).
bool compare(QuickstartRun& run);

/// The closing table.
std::string summary_text(const Json& summary);

}  // namespace dflash::cli
