// What the quickstart says at its end.
#include "cli/quickstart.h"

namespace dflash::cli {
namespace {

double number(const Json& summary, const char* key) {
  return summary.contains(key) && summary[key].is_number() ? summary[key].get<double>() : 0;
}

/// "-" where nothing was counted: every text loops, say.
std::string figure(const Json& arm, const char* key, int digits) {
  const double value = number(arm, key);
  return value > 0 ? fmt::format("{:.{}f}", value, digits) : "-";
}

std::string cells(const Json& arm) {
  return fmt::format("   {:>5} {:>9} {:>7} {:>7}", figure(arm, "tau", 2),
                     figure(arm, "tau_without_loops", 2), figure(arm, "tok_s", 1),
                     figure(arm, "speedup", 2));
}

std::string comparison_text(const Json& summary) {
  const Json& heldout = summary.at("comparison").at("heldout");
  const Json& humaneval = summary.at("comparison").at("humaneval");
  const auto title = [](const Json& set, const char* what) {
    return fmt::format("   {:>31}", fmt::format("{} {}, {} loop", set.at("prompts").get<int64_t>(),
                                                what, set.at("looping").get<int64_t>()));
  };
  const std::string heads =
      fmt::format("   {:>5} {:>9} {:>7} {:>7}", "tau", "no loops", "tok/s", "speed");
  std::string text =
      fmt::format("\n  {:<26}{}{}\n  {:<26}{}{}\n", "", title(heldout, "held-out prompts"),
                  title(humaneval, "HumanEval problems"), "", heads, heads);
  for (size_t i = 0; i < heldout.at("arms").size(); ++i) {
    const Json& arm = heldout.at("arms").at(i);
    text += fmt::format("  {:<26}{}{}\n", arm.at("name").get<std::string>(), cells(arm),
                        cells(humaneval.at("arms").at(i)));
  }
  return text;
}

std::string legend(const Json& summary) {
  const bool bundled = !summary.value("bundled_drafter", "").empty();
  std::string text =
      "\n"
      "  tau: tokens that one pass of the target yields; no loops: the same without texts that go\n"
      "  round in circles. speed: against plain decoding, one prompt at a time.\n"
      "  prompt lookup      drafts what followed the same words before: no drafter, the bar to "
      "clear\n";
  if (bundled) {
    text += "  bundled drafter    comes with the program, trained far longer (recipes/smollm2)\n";
  }
  text += fmt::format(
      "  your drafter       trained just now, {:.1f} minutes\n"
      "  combined           a drafter and lookup together, as much of each as pays; chat does "
      "so\n\n",
      number(summary, "train_minutes"));
  if (summary.at("options").value("short", false)) {
    text +=
        "  The short form shows only that every step works: its drafter knows next to nothing.\n\n";
  }
  return text;
}

}  // namespace

std::string summary_text(const Json& summary) {
  const auto value = [&](const char* key) { return number(summary, key); };
  std::string text = "\nquickstart summary\n";
  text += fmt::format("  data       {:.0f} answers, {:.0f} answer tokens\n", value("answers"),
                      value("answer_tokens"));
  text += fmt::format("  training   {:.1f} min, {:.0f} anchors, {:.0f} anchors/s\n",
                      value("train_minutes"), value("anchors"), value("anchors_per_s"));
  if (summary.contains("comparison")) text += comparison_text(summary) + legend(summary);
  text += fmt::format("  text       {}\n", summary.value("text_identical", false)
                                               ? "the same all ways, token for token"
                                               : "DIFFERS from plain decoding, see eval.json");
  text += fmt::format("  total      {:.1f} min\n", value("total_minutes"));
  text += fmt::format("  try it     dflash-cpp chat --drafter {}\n", summary.value("drafter", ""));
  if (!summary.value("bundled_drafter", "").empty()) {
    text += "             dflash-cpp chat     # the bundled drafter\n";
  }
  return text;
}

}  // namespace dflash::cli
