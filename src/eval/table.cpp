// The report for a terminal.
#include <limits>

#include "base/progress.h"
#include "eval/report.h"

namespace dflash::eval {
namespace {

std::string percents(const std::vector<double>& shares) {
  std::string line;
  for (double share : shares) line += fmt::format(" {:4.0f}", 100.0 * share);
  return line;
}

std::string speed_columns(const Report& report, const ArmReport& arm) {
  if (!report.timed) return "";
  const double speedup = report.speedup(arm);
  return fmt::format("  {:8.1f}  {:>7}", arm.speed.decode_rate(),
                     speedup > 0 ? fmt::format("{:.2f}x", speedup) : "-");
}

std::string equal_column(const Report& report, const ArmReport& arm) {
  if (!report.has_plain || arm.num_compared == 0) return "-";
  int64_t ties = 0;
  for (const Difference& difference : arm.differences) ties += difference.tie ? 1 : 0;
  const int64_t failures = static_cast<int64_t>(arm.differences.size()) - ties;
  if (failures > 0) return fmt::format("NO ({} differ)", failures);
  return ties > 0 ? fmt::format("yes ({} ties)", ties) : "yes";
}

std::string main_table(const Report& report) {
  std::string out = fmt::format("{:<24}  {:>6}  {:>9}  {:>8}", "", "tau", "no loops", "mean");
  out += report.timed ? fmt::format("  {:>8}  {:>7}", "tok/s", "speed") : "";
  out += "  same text\n";
  if (report.has_plain && report.num_tasks > 0) {
    out += fmt::format("{:<24}  {:>6}  {:>9}  {:>8}{}\n", "plain", "1", "1", "1",
                       speed_columns(report, report.plain));
  }
  for (const ArmReport& arm : report.arms) {
    if (arm.counts.passes() == 0) {
      out += fmt::format("{:<24}  {:>6}  {:>9}  {:>8}{}  -\n", arm.name, "-", "-", "-",
                         report.timed ? fmt::format("  {:>8}  {:>7}", "-", "-") : "");
      continue;
    }
    out += fmt::format("{:<24}  {:6.3f}  {:9.3f}  {:8.3f}{}  {}\n", arm.name, arm.counts.tau(),
                       arm.without_loops.tau(), arm.mean_of_means, speed_columns(report, arm),
                       equal_column(report, arm));
  }
  return out;
}

std::string details(const ArmReport& arm) {
  std::string out = fmt::format("\n{}\n", arm.name);
  out += fmt::format("  accepted to slot k, %      {}\n", percents(arm.counts.slot_acceptance()));
  out += fmt::format("  ... given slots before, %  {}\n",
                     percents(arm.counts.conditional_acceptance()));
  out += "  tokens a pass: passes      ";
  const std::vector<int64_t>& histogram = arm.counts.histogram();
  for (size_t n = 1; n < histogram.size(); ++n) out += fmt::format(" {}:{}", n, histogram[n]);
  out += "\n  tau by context             ";
  for (const ContextBin& bin : arm.by_context) {
    const bool open = bin.end == std::numeric_limits<int64_t>::max();
    out += fmt::format(" {}-{}: {:.2f}", bin.begin, open ? "" : fmt::format("{}", bin.end - 1),
                       bin.counts.tau());
  }
  return out + "\n";
}

/// Of right drafters of minutes 7 to 10 % of the drafts do; of one whose joint is off nearly all.
constexpr double kManyRepeat = 0.25;

std::string warnings(const Report& report) {
  std::string out;
  for (const ArmReport& arm : report.arms) {
    for (const Difference& d : arm.differences) {
      out += fmt::format("{}: {}: {} at answer token {}: plain {}, drafted {}, margin {:.4g}\n",
                         arm.name, d.task, d.tie ? "tie" : "DIFFERENT TEXT", d.index, d.plain_token,
                         d.drafted_token, d.margin);
    }
    // Texts repeat too; drafts that do so far more often are a sign of a joint that is off.
    if (report.num_tasks > 0 && arm.repeating_drafts > kManyRepeat &&
        arm.repeating_drafts > 3.0 * report.repeating_text) {
      out += fmt::format(
          "{}: {:.0f} % of the drafts repeat one or two tokens, {:.0f} % of the text does: taps, "
          "positions or mask id may be off (doctor)\n",
          arm.name, 100.0 * arm.repeating_drafts, 100.0 * report.repeating_text);
    }
  }
  return out;
}

}  // namespace

std::string Report::to_table() const {
  std::string out =
      fmt::format("{}: {}, {} of them loop, prompts {}, {}, kernels {}\n", tasks,
                  counted(num_tasks, "tasks"), num_looping, prompt_hash, target, kernels);
  if (num_too_long > 0) out += counted(num_too_long, "tasks") + " left out: prompt too long\n";
  for (const auto& [reason, count] : refused) {
    out += counted(count, "tasks") + " left out: " + reason + "\n";
  }
  if (stopped) out += "stopped early: the numbers cover a part of the tasks\n";
  out += main_table(*this);
  for (const ArmReport& arm : arms) out += arm.counts.passes() > 0 ? details(arm) : "";
  const std::string notes = warnings(*this);
  return notes.empty() ? out : out + "\n" + notes;
}

}  // namespace dflash::eval
