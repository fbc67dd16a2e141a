#include "io/jsonl.h"

#include <type_traits>

#include "base/json_strict.h"
#include "io/line_reader.h"

namespace dflash::io {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r") == std::string::npos;
}

/// The record, or why there is none. Training data often has duplicate keys; the last one counts.
template <typename Value>
Value parse_line(const LineReader::Line& line, const JsonlOptions& options) {
  if (line.too_long) throw BadRecord(fmt::format("longer than {} bytes", options.max_line_bytes));
  try {
    if constexpr (std::is_same_v<Value, OrderedJson>) {
      return parse_ordered_json_strictly(line.text, {.unique_keys = false});
    } else {
      return parse_json_strictly(line.text, {.unique_keys = false});
    }
  } catch (const Error& error) {
    throw BadRecord(error.what());
  }
}

template <typename Value>
JsonlCounts read_lines(BufferedFile& file, const JsonlOptions& options,
                       const std::function<void(int64_t line, const Value& record)>& on_record) {
  LineReader reader(file, options.max_line_bytes);
  LineReader::Line line;
  JsonlCounts counts;
  while (reader.next(line)) {
    counts.lines += 1;
    if (counts.lines == 1 && line.text.starts_with(kByteOrderMark)) {
      line.text.erase(0, kByteOrderMark.size());
    }
    if (!line.too_long && is_blank(line.text)) continue;
    bool parsed = false;
    try {
      const Value record = parse_line<Value>(line, options);
      parsed = true;
      on_record(counts.lines, record);
      counts.records += 1;
    } catch (const BadRecord& error) {
      if (!parsed && !line.ended) {
        counts.cut_off = true;
      } else if (options.on_bad_line == OnBadLine::kFail) {
        fail("bad line: {}:{}: {}", file.path().string(), counts.lines, error.what());
      } else {
        counts.skipped += 1;
        if (options.report) options.report(counts.lines, error.what());
      }
    }
  }
  return counts;
}

}  // namespace

JsonlCounts read_jsonl(const std::filesystem::path& path, const JsonlOptions& options,
                       const std::function<void(int64_t line, const Json& record)>& on_record) {
  BufferedFile file(path);
  return read_lines<Json>(file, options, on_record);
}

JsonlCounts read_jsonl_in_order(
    BufferedFile& file, const JsonlOptions& options,
    const std::function<void(int64_t line, const OrderedJson& record)>& on_record) {
  return read_lines<OrderedJson>(file, options, on_record);
}

}  // namespace dflash::io
