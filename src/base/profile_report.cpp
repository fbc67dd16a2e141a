// A profile as a table and as a trace.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/files.h"
#include "base/profile.h"

namespace dflash::profile {
namespace {

/// Sums over the ranges of one group and name.
struct Sum {
  int64_t calls = 0, own_ns = 0;
  Work work;
};
using Sums = std::map<std::pair<std::string, std::string>, Sum>;

/// Time of every event without the ranges inside it.
std::vector<int64_t> own_times(const std::vector<Event>& events) {
  std::vector<int64_t> own;
  std::vector<size_t> around;  // the open ranges at this event
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    own.push_back(event.end_ns - event.begin_ns);
    const auto closed = [&](size_t outer) {
      return events[outer].thread != event.thread || events[outer].end_ns <= event.begin_ns;
    };
    while (!around.empty() && closed(around.back())) around.pop_back();
    if (!around.empty()) own[around.back()] -= own[i];
    around.push_back(i);
  }
  return own;
}

Sums sum_of(const Profile& profile, bool first_thread) {
  const std::vector<int64_t> own = own_times(profile.events);
  Sums sums;
  for (size_t i = 0; i < own.size(); ++i) {
    const Event& event = profile.events[i];
    if ((event.thread == 0) != first_thread) continue;
    Sum& sum = sums[{event.group, event.name}];
    ++sum.calls;
    sum.own_ns += own[i];
    sum.work.operations += event.work.operations;
    sum.work.bytes += event.work.bytes;
  }
  return sums;
}

std::vector<Row> rows_of(const Sums& sums, int64_t total_ns) {
  std::vector<Row> rows;
  for (const auto& [key, sum] : sums) {
    const auto ns = static_cast<double>(sum.own_ns);
    rows.push_back({.group = key.first,
                    .name = key.second,
                    .calls = sum.calls,
                    .ms = ns / 1e6,
                    .share = total_ns > 0 ? ns / static_cast<double>(total_ns) : 0,
                    .gflops = ns > 0 ? sum.work.operations / ns : 0,
                    .gbs = ns > 0 ? sum.work.bytes / ns : 0});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.ms > b.ms; });
  return rows;
}

std::string line(const Row& row) {
  const auto rate = [](double value) {
    return value > 0 ? fmt::format("{:.4g}", value) : std::string();
  };
  return fmt::format("{:<12}{:<34}{:>9}{:>12.1f}{:>8.1f} %{:>10}{:>9}\n", row.group, row.name,
                     row.calls > 0 ? fmt::format("{}", row.calls) : "", row.ms, 100 * row.share,
                     rate(row.gflops), rate(row.gbs));
}

}  // namespace

std::vector<Row> table(const Profile& profile) {
  std::vector<Row> rows = rows_of(sum_of(profile, /*first_thread=*/true), profile.total_ns);
  double covered = 0;
  for (const Row& row : rows) covered += row.ms;
  const double total = static_cast<double>(profile.total_ns) / 1e6;
  rows.push_back({.group = "not covered",
                  .name = "",
                  .ms = total - covered,
                  .share = total > 0 ? (total - covered) / total : 0});
  return rows;
}

std::string text(const Profile& profile) {
  std::string out = fmt::format("{:<12}{:<34}{:>9}{:>12}{:>10}{:>10}{:>9}\n", "group", "part",
                                "calls", "ms", "share", "GFLOP/s", "GB/s");
  for (const Row& row : table(profile)) out += line(row);
  out += fmt::format("{:<46}{:>9}{:>12.1f}\n", "total", "",
                     static_cast<double>(profile.total_ns) / 1e6);
  const auto others = rows_of(sum_of(profile, /*first_thread=*/false), profile.total_ns);
  if (!others.empty()) out += "other threads, beside that:\n";
  for (const Row& row : others) out += line(row);
  if (profile.lost > 0) out += fmt::format("{} ranges more were not recorded\n", profile.lost);
  return out;
}

Json trace(const Profile& profile) {
  Json events = Json::array();
  for (const Event& event : profile.events) {
    Json entry = {{"name", event.name},
                  {"cat", event.group},
                  {"ph", "X"},
                  {"ts", static_cast<double>(event.begin_ns) / 1e3},
                  {"dur", static_cast<double>(event.end_ns - event.begin_ns) / 1e3},
                  {"pid", 1},
                  {"tid", event.thread}};
    if (event.work.operations > 0) entry["args"]["operations"] = event.work.operations;
    if (event.work.bytes > 0) entry["args"]["bytes"] = event.work.bytes;
    events.push_back(std::move(entry));
  }
  return {{"traceEvents", events},
          {"displayTimeUnit", "ms"},
          {"otherData", {{"total_ms", static_cast<double>(profile.total_ns) / 1e6}}}};
}

void write_trace(const Profile& profile, const std::filesystem::path& path) {
  write_text(path, trace(profile).dump());
}

}  // namespace dflash::profile
