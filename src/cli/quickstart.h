// The steps of the quickstart: prompts -> answers -> dataset -> features -> drafter -> comparison.
// Each step's result is a file; a step whose file is there and whole is not done again.
#pragma once

#include <filesystem>
#include <string>

#include "cli/options.h"
#include "jobs/training.h"

namespace dflash::cli {

struct QuickstartOptions {
  TargetOptions target;
  std::string out = "quickstart";
  double minutes = 6;         // of training; answers get about as much, the rest is small
  bool fresh = false;         // remove what an earlier call left
  bool short_form = false;    // 8 prompts, 20 steps: shows that the way works, not what it reaches
  int64_t timed_prompts = 8;  // held-out prompts decoded one at a time, for the speeds
  int64_t humaneval_prompts = 24;
  int64_t max_new_tokens = 160;

  double answer_seconds() const { return short_form ? 0 : minutes * 60 * 0.6; }
};

/// Everything a later step needs from an earlier one, and what the summary says.
struct QuickstartRun {
  QuickstartOptions options;
  std::filesystem::path folder;
  jobs::Model model;
  Json summary = Json::object();
};

/// All steps that are not done yet. Error when a signal stopped one: the same call goes on there.
void run_steps(QuickstartRun& run);

/// The last step: held-out prompts and HumanEval, plain, with the drafter, and by prompt lookup.
void compare(QuickstartRun& run);

/// The closing table.
std::string summary_text(const Json& summary);

}  // namespace dflash::cli
