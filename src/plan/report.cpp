// A plan as a table for people and as JSON.
#include <cmath>
#include <map>

#include "base/error.h"
#include "plan/plan.h"

namespace dflash::plan {
namespace {

std::string format_seconds(double seconds) {
  if (seconds >= 100) return fmt::format("{:.0f} s", seconds);
  return seconds >= 1 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} ms", seconds * 1e3);
}

std::string memory_table(const Plan& plan) {
  std::string out = fmt::format("{:<14}{:>10}  {}\n", "memory", "bytes", "what");
  std::string part;
  for (const Term& term : plan.memory.terms) {
    const bool in_peak = (term.phases & plan.memory.peak_phase) != 0;
    out += fmt::format("{:<14}{:>10}{} {}: {}\n", term.part == part ? "" : term.part,
                       format_bytes(term.bytes), in_peak ? " " : "-", term.what, term.formula);
    part = term.part;
  }
  out += fmt::format(
      "{:<14}{:>10}  in {}, the fullest moment; what is marked - is not there then\n", "needed",
      format_bytes(plan.memory.needed_bytes), phase_name(plan.memory.peak_phase));
  if (plan.memory.peak_bytes != plan.memory.needed_bytes) {
    out += fmt::format("{:<14}{:>10}  with mapped files, which the system takes back at need\n",
                       "shown", format_bytes(plan.memory.peak_bytes));
  }
  return out;
}

std::string time_table(const Plan& plan) {
  const Rates& rates = plan.request.rates;
  std::string out = fmt::format("{:<20}{:>10}{:>8}  what\n", "time of a step", "", "share");
  const double total = plan.seconds();
  for (const TimePart& part : plan.time) {
    std::string work;
    if (part.operations > 0) work = fmt::format("{:.3g} GFLOP", part.operations / 1e9);
    if (part.bytes > 0) {
      work += fmt::format("{}{:.3g} GB moved", work.empty() ? "" : ", ", part.bytes / 1e9);
    }
    out += fmt::format("{:<20}{:>10}{:>6.0f} %  {}: {}\n", part.part, format_seconds(part.seconds),
                       100 * part.seconds / total, part.what, work);
  }
  const auto anchors = static_cast<double>(plan.request.step.step_anchors);
  out += fmt::format("{:<20}{:>10}{:>8}  {:.0f} anchors a step, {:.3g} anchors/s\n", "total",
                     format_seconds(total), "", anchors, anchors / total);
  out += fmt::format("at {:.2g} of {:.4g} GFLOP/s and {:.3g} GB/s, {}\n", kReachedShare,
                     rates.gflops, rates.gbs,
                     rates.measured ? "measured on this machine just now"
                                    : "as given for the machine that is meant");
  return out;
}

std::string answer(const Plan& plan) {
  if (!plan.request.memory_bytes) return "";
  const int64_t limit = *plan.request.memory_bytes, needed = plan.memory.needed_bytes;
  if (plan.fits()) {
    return fmt::format("fits: {} of {}, {} are left\n", format_bytes(needed), format_bytes(limit),
                       format_bytes(limit - needed));
  }
  std::string out =
      fmt::format("does not fit: {} needed, {} there, {} too many\n", format_bytes(needed),
                  format_bytes(limit), format_bytes(needed - limit));
  for (const Change& change : plan.changes) {
    out += fmt::format("  {:<52} {:>10}{}\n", change.option, format_bytes(change.needed_bytes),
                       change.needed_bytes <= limit ? "  fits" : "");
  }
  if (plan.changes.empty()) out += "  no option of training changes that: a smaller target would\n";
  return out;
}

Json rate_json(const Rates& rates) {
  return {{"gflops", rates.gflops}, {"gbs", rates.gbs}, {"measured", rates.measured}};
}

}  // namespace

std::string Plan::text() const {
  const DrafterShape& d = request.drafter;
  const StepShape& s = request.step;
  std::string out =
      fmt::format("target   {}, {} blocks, hidden {}, vocabulary {}, {:.4g} M parameters\n",
                  request.target.family, request.target.num_layers, request.target.hidden_size,
                  request.target.vocab_size,
                  static_cast<double>(request.target.block_parameters +
                                      (request.target.tied_embeddings ? 1 : 2) *
                                          request.target.vocab_size * request.target.hidden_size) /
                      1e6);
  out += fmt::format("drafter  {} layers, block {}, {} taps, vocabulary {}, {:.4g} M parameters\n",
                     d.num_layers, d.block_size, d.num_taps, d.vocab_size,
                     static_cast<double>(d.parameters()) / 1e6);
  out += fmt::format("step     rows of up to {} tokens, passes of up to {} anchors, {}\n\n",
                     s.row_tokens, s.pass_anchors,
                     s.live_target ? "the target live" : "features from files");
  out += memory_table(*this) + "\n" + time_table(*this);
  const std::string fit = answer(*this);
  return fit.empty() ? out : out + "\n" + fit;
}

Json Plan::to_json() const {
  Json terms = Json::array(), parts = Json::array(), help = Json::array();
  std::map<std::string, int64_t> by_part;
  for (const Term& term : memory.terms) {
    const bool in_peak = (term.phases & memory.peak_phase) != 0;
    if (in_peak) by_part[term.part] += term.bytes;
    terms.push_back({{"part", term.part},
                     {"what", term.what},
                     {"formula", term.formula},
                     {"bytes", term.bytes},
                     {"in_peak", in_peak},
                     {"reclaimable", term.reclaimable}});
  }
  for (const TimePart& part : time) {
    parts.push_back({{"part", part.part},
                     {"what", part.what},
                     {"operations", part.operations},
                     {"bytes", part.bytes},
                     {"seconds", part.seconds}});
  }
  for (const Change& change : changes) {
    help.push_back({{"option", change.option}, {"needed_bytes", change.needed_bytes}});
  }
  Json out = {{"memory", terms},
              {"peak_by_part", by_part},
              {"peak_moment", phase_name(memory.peak_phase)},
              {"needed_bytes", memory.needed_bytes},
              {"peak_bytes", memory.peak_bytes},
              {"drafter_parameters", request.drafter.parameters()},
              {"time", parts},
              {"seconds_per_step", seconds()},
              {"anchors_per_step", request.step.step_anchors},
              {"rates", rate_json(request.rates)}};
  if (request.memory_bytes) {
    out["memory_bytes"] = *request.memory_bytes;
    out["fits"] = fits();
    out["changes"] = help;
  }
  return out;
}

int64_t parse_bytes(const std::string& text) {
  size_t end = 0;
  double value = 0;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  std::string unit;
  for (const char c : text.substr(end)) {
    if (c != ' ') unit.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  const std::map<std::string, double> units = {
      {"", 1},     {"B", 1},     {"KB", 1e3},           {"MB", 1e6},
      {"GB", 1e9}, {"TB", 1e12}, {"KIB", 1024.0},       {"MIB", 1048576.0},
      {"G", 1e9},  {"M", 1e6},   {"GIB", 1073741824.0}, {"TIB", 1099511627776.0}};
  const auto found = units.find(unit);
  if (end == 0 || found == units.end() || !(value > 0) || !(value * found->second < 9e18)) {
    fail("--memory: expected a size like 96GB or 64GiB, got {}", text);
  }
  return static_cast<int64_t>(value * found->second);
}

std::string format_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 1e9) return fmt::format("{:.2f} GB", value / 1e9);
  return value >= 1e6 ? fmt::format("{:.1f} MB", value / 1e6)
                      : fmt::format("{:.1f} kB", value / 1e3);
}

}  // namespace dflash::plan
