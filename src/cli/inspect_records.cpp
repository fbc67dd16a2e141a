// inspect FILE.jsonl, or a .json file of records: what its rows say.
#include <map>

#include "cli/inspect.h"
#include "data/rows.h"
#include "io/records.h"

namespace dflash::cli {
namespace {

const char* kind_name(data::Row::Kind kind) {
  switch (kind) {
    case data::Row::Kind::kChat:
      return "conversations";
    case data::Row::Kind::kExactIds:
      return "exact ids";
    case data::Row::Kind::kPlainText:
      return "plain texts";
  }
  return "";
}

}  // namespace

Json describe_records(const std::filesystem::path& path) {
  std::map<std::string, int64_t> fields, rows, rejected;
  int64_t answer_tokens = 0;
  const io::RecordOptions options{.on_bad = io::OnBadLine::kSkip};
  const auto counts = io::read_records(path, options, [&](const auto&, const auto& record) {
    if (record.is_object()) {
      for (const auto& [name, value] : record.items()) ++fields[name];
    }
    const data::ParsedRow parsed = data::parse_row(record);
    if (const auto* row = std::get_if<data::Row>(&parsed)) {
      ++rows[kind_name(row->kind)];
      answer_tokens += static_cast<int64_t>(row->answer_ids.size());
    } else {
      ++rejected[std::get<data::Rejected>(parsed).reason];
    }
  });
  const std::string unit = counts.is_array ? "records" : "lines";
  Json json = {{"kind", unit},     {unit, counts.seen}, {"broken_" + unit, counts.skipped},
               {"fields", fields}, {"rows", rows},      {"no_rows", rejected}};
  if (answer_tokens > 0) json["answer_tokens"] = answer_tokens;
  if (!counts.cut_off.empty()) json["cut_off"] = counts.cut_off;
  return json;
}

}  // namespace dflash::cli
