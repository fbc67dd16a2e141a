#include "data/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/progress.h"

namespace dflash::data {

double PrepareReport::supervised_share() const {
  return tokens == 0 ? 0.0 : static_cast<double>(supervised) / static_cast<double>(tokens);
}

std::string PrepareReport::text() const {
  constexpr std::string_view kLine = "{:<52} {:>9}  {}\n";
  std::string out = fmt::format(kLine, "rows read", rows, "");
  if (pieces > 0) out += fmt::format(kLine, "  more, where long plain text was cut", pieces, "");
  if (more_rows > 0)
    out += fmt::format(kLine, "  more, where the template rewrites earlier turns", more_rows, "");
  const bool of_all = conversations == 0 || conversations == documents;
  out += fmt::format(kLine, "documents kept", documents,
                     of_all ? "" : "from " + counted(conversations, "conversations"));
  out += fmt::format(kLine, "tokens", tokens, "");
  out += fmt::format(kLine, "  supervised", supervised,
                     fmt::format("{:.1f} %", 100.0 * supervised_share()));
  if (truncated > 0)
    out += fmt::format(kLine, "  documents cut to the longest length", truncated, "");
  if (answers_cut > 0)
    out += fmt::format(kLine, "  documents whose last answer has no end", answers_cut, "");
  out += fmt::format(kLine, "dropped", dropped(), drops_.empty() ? "" : "first at");
  std::vector<std::pair<std::string, Drop>> sorted(drops().begin(), drops().end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  for (const auto& [reason, drop] : sorted) {
    out += fmt::format(kLine, "  " + reason, drop.count, drop.first);
  }
  for (const std::string& warning : warnings) out += "warning: " + warning + "\n";
  return out;
}

Json PrepareReport::to_json() const {
  Json drops = Json::object();
  for (const auto& [reason, drop] : this->drops()) {
    drops[reason] = {{"count", drop.count}, {"first", drop.first}};
  }
  return {{"rows", rows},
          {"pieces", pieces},
          {"more_rows", more_rows},
          {"documents", documents},
          {"conversations", conversations},
          {"tokens", tokens},
          {"supervised", supervised},
          {"truncated", truncated},
          {"answers_cut", answers_cut},
          {"dropped", dropped()},
          {"drops", drops},
          {"warnings", warnings}};
}

}  // namespace dflash::data
