// Which convention was a drafter really trained under? Scores the declared one and every single
// deviation on the same anchors, asks whether a deviation is better than chance allows, and
// confirms the best by real decoding.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "doctor/deviations.h"
#include "doctor/evidence.h"
#include "doctor/prompt_arms.h"
#include "doctor/score.h"

namespace dflash::doctor {

struct ExplainOptions {
  EvidenceOptions evidence;
  int64_t anchors_per_document = 64;
  int64_t resamples = 20000;  // of prompts; the smallest p is 1 / (resamples + 1)
  double alpha = 0.01;        // after Holm's correction
  double min_gain = 0.01;     // expected tokens; below this a difference is of no use to anyone
  /// Scored beside the deviations, on their own texts, paired by question. Other texts may be
  /// easier for any drafter, so these must gain more before they are named.
  std::vector<PromptArm> prompt_arms = {};
  std::vector<int64_t> mask_ids = {};  // tried beside those of deviations_of
  double min_gain_of_texts = 0.05;     // share of the declared score
  int64_t confirm = 2;                 // best deviations that are decoded for real; 0: none
  std::function<void(int64_t done, int64_t total)> on_arm = {};  // may be empty
  std::function<bool()> should_stop = {};                        // may be empty
};

/// One convention's row of the table, or a prompt arm's.
struct ArmResult {
  std::string name, words;
  double score = 0;      // expected acceptance length
  double greedy = 0;     // greedy acceptance length
  Comparison gain = {};  // of the score, over the declared convention
  double p_holm = 1;
  bool servable = true;
  bool other_texts = false;        // a prompt arm
  std::optional<double> tau = {};  // of real decoding, where it was run
};

struct Explanation {
  int64_t prompts = 0, anchors = 0;
  ArmResult declared;
  std::vector<ArmResult> arms = {};  // by score, the best first
  /// Index of the deviation that beats the declaration; none: the declaration stands.
  std::optional<size_t> verdict = {};
  std::vector<size_t> not_told_apart = {};  // deviations that the verdict does not clearly beat
  int64_t prompts_needed = 0;  // more than gave anchors: chance could explain any gain; else 0

  /// "this drafter was trained with ..." or that no deviation does better.
  std::string sentence() const;
  std::string to_table() const;
  Json to_json() const;
};

/// Prompts whose answers end up empty count nothing. Error when no prompt gives an anchor, or the
/// drafter's logits are not finite under its own convention.
Explanation explain(const target::Target& target, const draft::Drafter& drafter,
                    const std::vector<std::vector<int64_t>>& prompts,
                    const ExplainOptions& options);

}  // namespace dflash::doctor
