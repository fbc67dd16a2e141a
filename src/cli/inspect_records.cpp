// inspect FILE.jsonl: what its rows say.
#include <map>

#include "cli/inspect.h"
#include "data/rows.h"
#include "io/jsonl.h"

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

Json describe_jsonl(const std::filesystem::path& path) {
  std::map<std::string, int64_t> fields, rows, rejected;
  int64_t answer_tokens = 0;
  io::JsonlOptions options;
  options.on_bad_line = io::OnBadLine::kSkip;
  options.report = [](int64_t, const std::string&) {};
  const auto counts = io::read_jsonl_in_order(path, options, [&](int64_t, const auto& record) {
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
  Json json = {{"kind", "lines"},  {"lines", counts.lines}, {"broken_lines", counts.skipped},
               {"fields", fields}, {"rows", rows},          {"no_rows", rejected}};
  if (answer_tokens > 0) json["answer_tokens"] = answer_tokens;
  if (counts.cut_off) json["last_line"] = "cut off";
  return json;
}

}  // namespace dflash::cli
