// The tables for a terminal of 80 columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/progress.h"
#include "runs/report.h"
#include "runs/text.h"

namespace dflash::runs {
namespace {

constexpr size_t kNameColumns = 34;
constexpr int64_t kRestColumns = 80 - kNameColumns, kLeastCell = 8, kMostCell = 22;

/// Of a value's column when so many runs stand side by side; many runs go beyond the 80.
size_t cell_columns(size_t num_runs) {
  const int64_t share = kRestColumns / static_cast<int64_t>(num_runs) - 2;
  return static_cast<size_t>(std::clamp(share, kLeastCell, kMostCell));
}

std::string row(const std::string& name, const std::vector<std::string>& cells) {
  std::string line = fmt::format("{:<{}}", name, kNameColumns);
  for (const std::string& cell : cells) {
    line += fmt::format("  {:>{}}", cell, cell_columns(cells.size()));
  }
  return line + "\n";
}

std::string head(const std::string& title, const std::vector<TrainingRun>& runs) {
  std::vector<std::string> cells;
  for (size_t i = 0; i < runs.size(); ++i) cells.push_back(label(i));
  return fmt::format("\n{}", row(title, cells));
}

std::string legend(const std::vector<TrainingRun>& runs) {
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    const TrainingRun& run = runs[i];
    out += fmt::format("{}  {}\n   {} of {} steps, {} anchors, {}, {}\n", label(i),
                       printable(run.path.string()), run.last_step(), run.total_steps,
                       format_count(run.anchors_seen()), state_name(run.state),
                       format_time(run.written));
    for (const std::string& problem : run.problems) {
      out += wrapped("   damaged: " + printable(problem), 5);
    }
  }
  return out;
}

/// Values that do not fit side by side stand below each other.
std::string setting_rows(const Setting& setting) {
  const size_t most = cell_columns(setting.values.size());
  std::vector<std::string> cells;
  bool fits = setting.name.size() + 2 <= kNameColumns;
  for (const auto& value : setting.values) {
    cells.push_back(value ? format_value(*value) : "-");
    fits = fits && cells.back().size() <= most;
  }
  const std::string name = "  " + printable(setting.name);
  if (fits) return row(name, cells);
  std::string out = name + "\n";
  for (size_t i = 0; i < cells.size(); ++i) {
    out += wrapped(fmt::format("    {}  {}", label(i), cells[i]), 7);
  }
  return out;
}

std::string settings_table(const Comparison& comparison) {
  const auto& settings = comparison.settings;
  if (settings.differing.empty()) {
    return fmt::format("\nNo setting differs ({} are the same).\n", settings.num_same);
  }
  std::string out = head("settings that differ", comparison.runs);
  for (const Setting& setting : settings.differing) out += setting_rows(setting);
  return out + fmt::format("  ({} are the same)\n", settings.num_same);
}

std::string identity_text(const Identity& identity) {
  if (identity.common_steps == 0) return "no step in common";
  if (identity.first_other == 0) {
    return fmt::format("the same bit for bit in all {}",
                       counted(identity.common_steps, "common steps"));
  }
  const std::string from =
      fmt::format("step {} differs in {}", identity.first_other, fmt::join(identity.fields, ", "));
  if (identity.same_until == 0) return "other from the start: " + from;
  return fmt::format("the same bit for bit until step {}; {}", identity.same_until, from);
}

std::string amount(const Parting& parting, const std::string& a, const std::string& b) {
  const double size = std::abs(parting.difference);
  return fmt::format("{} {} by {:.3g} +- {:.2g}", b,
                     parting.difference > 0 ? "above " + a : "below " + a, size, parting.error);
}

std::string parting_text(const Parting& parting, Axis axis, const std::string& a,
                         const std::string& b) {
  const auto at = [&] {
    return axis == Axis::kStep
               ? fmt::format("step {}", parting.from_step)
               : fmt::format("{} anchors ({}'s step {})", format_count(parting.from_anchors), a,
                             parting.from_step);
  };
  switch (parting.verdict) {
    case Verdict::kTooShort:
      return fmt::format("too short to tell: {} in common", counted(parting.num_pairs, "steps"));
    case Verdict::kTogether:
      if (parting.difference == 0 && parting.error == 0) return "never apart";
      return fmt::format("never apart beyond noise; {} at the end", amount(parting, a, b));
    case Verdict::kApart:
      return fmt::format("apart from {} on, to the end: {} there", at(), amount(parting, a, b));
    case Verdict::kMetAgain:
      return fmt::format("apart from {} to step {} ({}), together again after it", at(),
                         parting.to_step, amount(parting, a, b));
  }
  return "";
}

std::string verdict(const AgainstFirst& other, Axis axis, const std::string& b) {
  std::string out = fmt::format("\n{} against A\n", b);
  out += wrapped("  bits        " + identity_text(other.identity), 14);
  out += wrapped(
      "  loss        " + (other.caveats.loss_comparable ? parting_text(other.loss, axis, "A", b)
                                                        : std::string("not compared")),
      14);
  out += wrapped("  acceptance  " + parting_text(other.acceptance, axis, "A", b), 14);
  for (const std::string& text : other.caveats.texts) out += wrapped("  note        " + text, 14);
  return out;
}

std::string verdicts(const Comparison& comparison) {
  std::string out;
  for (size_t i = 0; i < comparison.others.size(); ++i) {
    out += verdict(comparison.others[i], comparison.axis, label(i + 1));
  }
  if (out.empty()) return out;
  const Parting& first = comparison.others[0].loss;
  return out + wrapped(fmt::format("  (apart: in two or more windows of {} in a row the mean "
                                   "difference is beyond 3 standard errors, to the same side)",
                                   counted(first.pairs_per_window, "steps")),
                       3);
}

std::string curve_columns(const std::vector<CurveWindow>& curve, double Point::*figure,
                          const std::string& title, const std::vector<TrainingRun>& runs) {
  std::string out = head(title, runs);
  for (const CurveWindow& window : curve) {
    std::vector<std::string> cells;
    for (const Point& point : window.points) {
      cells.push_back(point.num_steps > 0 ? format_number(point.*figure) : "-");
    }
    out += row(fmt::format("  {} - {}", format_count(window.begin + 1), format_count(window.end)),
               cells);
  }
  return out;
}

std::string curves(const Comparison& comparison) {
  if (comparison.curve.empty()) return "";
  const std::string by = fmt::format(", means by {}", axis_name(comparison.axis));
  return curve_columns(comparison.curve, &Point::loss, "loss" + by, comparison.runs) +
         curve_columns(comparison.curve, &Point::expected_acceptance, "expected acceptance" + by,
                       comparison.runs);
}

/// One line a run: slots side by side, in percent.
std::string slot_lines(const std::string& title, const std::vector<TrainingRun>& runs,
                       const std::function<std::vector<double>(const TrainingRun&)>& shares) {
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto list = shares(runs[i]);
    if (list.empty()) continue;
    out += fmt::format("    {}  ", label(i));
    for (double share : list) out += fmt::format(" {:4.1f}", 100.0 * share);
    out += "\n";
  }
  return out.empty() ? out : "  " + title + "\n" + out;
}

std::string figures(const std::vector<TrainingRun>& runs) {
  std::string out = head(fmt::format("at the end, mean of {} steps", kLastSteps), runs);
  const auto add = [&](const char* name,
                       const std::function<std::string(const TrainingRun&)>& text) {
    std::vector<std::string> cells;
    for (const TrainingRun& run : runs) cells.push_back(text(run));
    out += row(std::string("  ") + name, cells);
  };
  const auto end = [](double Point::*figure) {
    return [figure](const TrainingRun& run) {
      return run.steps.empty() ? "-" : format_number(last_steps(run, kLastSteps).*figure);
    };
  };
  add("loss", end(&Point::loss));
  add("accuracy", end(&Point::accuracy));
  add("expected acceptance", end(&Point::expected_acceptance));
  add("grad norm", end(&Point::grad_norm));
  add("steps not applied (not finite)",
      [](const TrainingRun& run) { return fmt::format("{}", num_not_applied(run)); });
  add("anchors", [](const TrainingRun& run) { return format_count(run.anchors_seen()); });
  add("anchors/s", [](const TrainingRun& run) {
    const double rate = run.anchors_per_second();
    return rate > 0 ? fmt::format("{:.0f}", rate) : "-";
  });
  return out +
         slot_lines("slots right in training, %, slot 1 first", runs, [](const TrainingRun& run) {
           auto shares = slot_accuracy_at_end(run);
           if (!shares.empty()) shares.erase(shares.begin());
           return shares;
         });
}

std::string validations(const std::vector<TrainingRun>& runs) {
  std::set<int64_t> steps;
  for (const TrainingRun& run : runs) {
    for (const Validation& validation : run.validations) steps.insert(validation.step);
  }
  if (steps.empty()) return "\nNo run was validated by decoding (train --validate).\n";
  constexpr size_t kMostRows = 12;
  const size_t stride = (steps.size() + kMostRows - 1) / kMostRows;
  std::string out = head("tau by decoding", runs);
  size_t index = 0;
  for (const int64_t step : steps) {
    if (++index % stride != 0 && index != steps.size()) continue;
    std::vector<std::string> cells;
    for (const TrainingRun& run : runs) {
      const auto at = std::find_if(run.validations.begin(), run.validations.end(),
                                   [&](const Validation& v) { return v.step == step; });
      cells.push_back(at == run.validations.end() ? "-" : fmt::format("{:.3f}", at->tau));
    }
    out += row(fmt::format("  step {}", step), cells);
  }
  std::vector<std::string> best;
  for (const TrainingRun& run : runs) {
    double most = std::nan("");
    for (const Validation& validation : run.validations) most = std::fmax(most, validation.tau);
    best.push_back(std::isnan(most) ? "-" : fmt::format("{:.3f}", most));
  }
  out += row("  best", best);
  return out + slot_lines("accepted to slot k at the last validation, %", runs,
                          [](const TrainingRun& run) {
                            return run.validations.empty() ? std::vector<double>{}
                                                           : run.validations.back().slot_acceptance;
                          });
}

/// Without the year; "-" where no time is known.
std::string short_time(decltype(TrainingRun::written) when) {
  const std::string text = format_time(when);
  return text.size() > 5 ? text.substr(5) : text;
}

std::string list_row(const Listed& listed) {
  constexpr size_t kPath = 28;
  const std::string path = keep_end(printable(listed.path.string()), kPath);
  if (!listed.run) {
    const std::string problem = listed.problem.substr(0, listed.problem.find("\n  hint: "));
    return wrapped(fmt::format("{:<{}}  damaged: {}", path, kPath, printable(problem)), 5);
  }
  const TrainingRun& run = *listed.run;
  const double loss = last_steps(run, kLastSteps).loss;
  const double tau = run.validations.empty() ? std::nan("") : run.validations.back().tau;
  std::string out =
      fmt::format("{:<{}} {:>11} {:>7} {:>6} {:>6} {:<8} {}\n", path, kPath,
                  fmt::format("{}/{}", run.last_step(), run.total_steps),
                  format_count(run.anchors_seen()), run.steps.empty() ? "-" : format_number(loss),
                  std::isnan(tau) ? "-" : fmt::format("{:.3f}", tau), state_name(run.state),
                  short_time(run.written));
  for (const std::string& problem : run.problems) {
    out += wrapped("   damaged: " + printable(problem), 5);
  }
  return out;
}

}  // namespace

std::string Comparison::to_table() const {
  std::string out = legend(runs);
  if (runs.size() > 1) out += settings_table(*this) + verdicts(*this);
  return out + curves(*this) + figures(runs) + validations(runs);
}

std::string list_table(const std::vector<Listed>& list) {
  std::vector<std::string> targets;  // in order of their first run
  for (const Listed& listed : list) {
    const std::string target = listed.run ? listed.run->target() : "";
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) {
      targets.push_back(target);
    }
  }
  std::string out;
  for (const std::string& target : targets) {
    out += target.empty() ? "cannot be read\n" : wrapped("target: " + printable(target), 8);
    if (!target.empty()) {
      out += fmt::format("{:<28} {:>11} {:>7} {:>6} {:>6} {:<8} {}\n", "", "steps", "anchors",
                         "loss", "tau", "state", "written");
    }
    for (const Listed& listed : list) {
      if ((listed.run ? listed.run->target() : "") == target) out += list_row(listed);
    }
    out += "\n";
  }
  return out + counted(static_cast<int64_t>(list.size()), "runs") +
         "; 'dflash-cpp runs RUN RUN' compares\n";
}

}  // namespace dflash::runs
