// The table and the JSON form of an explanation.
#include <fmt/format.h>

#include "doctor/explain.h"

namespace dflash::doctor {
namespace {

std::string tau_text(const ArmResult& arm) {
  if (arm.tau) return fmt::format("{:.3f}", *arm.tau);
  return arm.servable ? "" : "cannot serve";
}

std::string row(const ArmResult& arm, bool declared) {
  const std::string gain = declared ? ""
                                    : fmt::format("{:+.3f} [{:+.3f}, {:+.3f}]", arm.gain.difference,
                                                  arm.gain.low, arm.gain.high);
  return fmt::format("{:<22} {:>7.3f} {:>7.3f}  {:<26} {:>7}  {:<12} {}\n", arm.name, arm.score,
                     arm.greedy, gain, declared ? "" : fmt::format("{:.4f}", arm.p_holm),
                     tau_text(arm), arm.words);
}

Json arm_json(const ArmResult& arm) {
  Json json = {{"name", arm.name},
               {"words", arm.words},
               {"expected_acceptance", arm.score},
               {"greedy_acceptance", arm.greedy},
               {"gain", arm.gain.difference},
               {"gain_low", arm.gain.low},
               {"gain_high", arm.gain.high},
               {"p", arm.gain.p},
               {"p_holm", arm.p_holm},
               {"servable", arm.servable},
               {"other_texts", arm.other_texts}};
  if (arm.tau) json["tau"] = *arm.tau;
  return json;
}

}  // namespace

std::string Explanation::sentence() const {
  if (!verdict && prompts_needed > 0) {
    return fmt::format(
        "too few prompts gave anchors: chance could explain any gain of {} deviations; at least {} "
        "are needed",
        arms.size(), prompts_needed);
  }
  if (!verdict) return "no deviation beats the declared convention";
  const ArmResult& best = arms[*verdict];
  std::string text = fmt::format("this drafter was trained with {} ({}): {:+.3f} tokens a pass",
                                 best.words, best.name, best.gain.difference);
  if (best.other_texts) text += " on the texts that this gives";
  if (!not_told_apart.empty()) {
    text += "\nor, nearly as well, with:";
    for (const size_t a : not_told_apart) {
      text += fmt::format(" {} ({});", arms[a].words, arms[a].name);
    }
    text += " a trace of the training pass tells them apart (doctor --trace)";
  }
  if (best.tau && declared.tau && *best.tau <= *declared.tau) {
    text += fmt::format("\nreal decoding does not confirm it: tau {:.3f}, declared {:.3f}",
                        *best.tau, *declared.tau);
  }
  if (!best.servable) {
    text +=
        "\nit cannot be served like that (the anchor's feature is not known when its block is "
        "drafted): train it again";
  }
  return text;
}

std::string Explanation::to_table() const {
  std::string text = fmt::format(
      "{} prompts, {} anchors, the target's own greedy answers; score = expected acceptance "
      "length\n{:<22} {:>7} {:>7}  {:<26} {:>7}  {:<12}\n",
      prompts, anchors, "convention", "score", "greedy", "gain [95 %]", "p(Holm)", "tau decoded");
  bool listed = false;
  for (const ArmResult& arm : arms) {
    if (!listed && arm.score < declared.score) {
      text += row(declared, true);
      listed = true;
    }
    text += row(arm, false);
  }
  if (!listed) text += row(declared, true);
  for (const ArmResult& arm : arms) {
    if (!arm.other_texts) continue;
    text +=
        "system-, thinking-, template-: the same questions give other texts; paired by question\n";
    break;
  }
  return text + "\n" + sentence() + "\n";
}

Json Explanation::to_json() const {
  Json json = {{"prompts", prompts},
               {"anchors", anchors},
               {"declared", arm_json(declared)},
               {"sentence", sentence()},
               {"prompts_needed", prompts_needed},
               {"verdict", verdict ? Json(arms[*verdict].name) : Json()}};
  for (const size_t a : not_told_apart) json["not_told_apart"].push_back(arms[a].name);
  for (const ArmResult& arm : arms) json["arms"].push_back(arm_json(arm));
  return json;
}

}  // namespace dflash::doctor
