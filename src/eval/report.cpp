#include "eval/report.h"

#include <algorithm>
#include <limits>

namespace dflash::eval {
namespace {

double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

/// In a batch prompts and answers share passes: their seconds are not measured apart.
Json to_json(const Speed& speed, bool timed) {
  Json json = {{"seconds", speed.prefill_seconds + speed.decode_seconds},
               {"tokens", speed.tokens},
               {"overall_tokens_per_second", speed.overall_rate()}};
  if (timed) {
    json.update({{"prefill_seconds", speed.prefill_seconds},
                 {"decode_seconds", speed.decode_seconds},
                 {"decode_tokens", speed.decode_tokens},
                 {"decode_tokens_per_second", speed.decode_rate()}});
  }
  return json;
}

Json to_json(const Difference& difference) {
  return {{"task", difference.task},
          {"index", difference.index},
          {"plain_token", difference.plain_token},
          {"drafted_token", difference.drafted_token},
          {"margin", difference.margin},
          {"tie", difference.tie}};
}

Json to_json(const ContextBin& bin) {
  const bool open = bin.end == std::numeric_limits<int64_t>::max();
  return {{"begin", bin.begin},
          {"end", open ? Json(nullptr) : Json(bin.end)},
          {"tau", bin.counts.tau()},
          {"passes", bin.counts.passes()}};
}

Json to_json(const ArmReport& arm, bool timed) {
  Json json = {{"name", arm.name},
               {"acceptance", arm.counts.to_json()},
               {"tau_without_loops", arm.without_loops.tau()},
               {"mean_of_means", arm.mean_of_means},
               {"speed", to_json(arm.speed, timed)},
               {"repeating_drafts", arm.repeating_drafts},
               {"compared", arm.num_compared},
               {"by_context", Json::array()},
               {"differences", Json::array()}};
  for (const ContextBin& bin : arm.by_context) json["by_context"].push_back(to_json(bin));
  for (const Difference& d : arm.differences) json["differences"].push_back(to_json(d));
  return json;
}

}  // namespace

void Speed::add(const Speed& other) {
  prefill_seconds += other.prefill_seconds;
  decode_seconds += other.decode_seconds;
  tokens += other.tokens;
  decode_tokens += other.decode_tokens;
}

double Speed::decode_rate() const {
  return rate(decode_tokens, decode_seconds);
}
double Speed::overall_rate() const {
  return rate(tokens, prefill_seconds + decode_seconds);
}

bool Report::lossless() const {
  return std::all_of(arms.begin(), arms.end(), [](const ArmReport& arm) {
    return std::all_of(arm.differences.begin(), arm.differences.end(),
                       [](const Difference& difference) { return difference.tie; });
  });
}

std::vector<std::string> Report::ineffective() const {
  std::vector<std::string> found;
  for (const ArmReport& arm : arms) {
    if (stopped || !arm.is_drafter || arm.counts.passes() == 0 || arm.counts.tau() > 1.0) continue;
    if (arm.counts.proposed() == 0) {
      found.push_back(fmt::format(
          "eval: {}: expected drafts, but no token was proposed in {} passes\n"
          "  hint: answers of one or two tokens (--max-new) leave no room for drafts; else see "
          "doctor",
          arm.name, arm.counts.passes()));
      continue;
    }
    found.push_back(fmt::format(
        "eval: {}: expected a mean of more than 1 committed token a pass, got {:.3f} ({} of {} "
        "proposed tokens accepted)\n"
        "  hint: no draft ever helped; check that drafter and target belong together (doctor)",
        arm.name, arm.counts.tau(), arm.counts.accepted(), arm.counts.proposed()));
  }
  return found;
}

double Report::speedup(const ArmReport& arm) const {
  if (!timed || !has_plain || plain.speed.decode_rate() == 0) return 0.0;
  return arm.speed.decode_rate() / plain.speed.decode_rate();
}

Json Report::to_json() const {
  Json json = {{"format", "dflash-eval"},
               {"version", 1},
               {"tasks", tasks},
               {"prompt_hash", prompt_hash},
               {"target", target},
               {"kernels", kernels},
               {"num_tasks", num_tasks},
               {"num_too_long", num_too_long},
               {"refused", refused},
               {"num_looping", num_looping},
               {"repeating_text", repeating_text},
               {"timed", timed},
               {"stopped", stopped},
               {"arms", Json::array()}};
  if (has_plain) {
    json["plain"] = eval::to_json(plain, timed);
    json["lossless"] = lossless();
  }
  for (const ArmReport& arm : arms) {
    Json entry = eval::to_json(arm, timed);
    if (timed && has_plain) entry["speedup"] = speedup(arm);
    json["arms"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace dflash::eval
