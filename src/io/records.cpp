#include "io/records.h"

#include "base/error.h"
#include "base/json_strict.h"
#include "io/array_reader.h"

namespace dflash::io {
namespace fs = std::filesystem;
namespace {

using OnRecord = std::function<void(const RecordPlace&, const OrderedJson&)>;

bool is_array(BufferedFile& file) {
  const fs::path extension = file.path().extension();
  const bool named_lines = extension == ".jsonl" || extension == ".ndjson";
  return !named_lines && ArrayReader::starts_array(file.window());
}

/// A .json file may hold lines, but one object over many lines would be as many broken ones.
void refuse_single_object(BufferedFile& file) {
  if (file.path().extension() != ".json") return;
  std::string_view head = file.window();
  head.remove_prefix(std::min(head.find_first_not_of("\xEF\xBB\xBF \t\r\n"), head.size()));
  const std::string_view line = head.substr(0, head.find('\n'));
  if (line.size() < head.size() && line.find_first_not_of("{ \t\r") == std::string_view::npos &&
      line.starts_with('{')) {
    fail(
        "{}: expected an array of records, or one record a line, got one object\n"
        "  hint: keep only the array of records that is in it",
        file.path().string());
  }
}

RecordCounts read_lines(BufferedFile& file, const RecordOptions& options,
                        const OnRecord& on_record) {
  refuse_single_object(file);
  const auto place = [&](int64_t line) { return RecordPlace{file.path().string(), "line", line}; };
  const JsonlOptions jsonl{.on_bad_line = options.on_bad,
                           .max_line_bytes = options.max_bytes,
                           .report = [&](int64_t line, const std::string& reason) {
                             if (options.report) options.report(place(line), reason);
                           }};
  const JsonlCounts counts = read_jsonl_in_order(
      file, jsonl,
      [&](int64_t line, const OrderedJson& record) { on_record(place(line), record); });
  RecordCounts out{.seen = counts.lines, .records = counts.records, .skipped = counts.skipped};
  if (counts.cut_off) out.cut_off = fmt::format("the last line ({}) is cut off", counts.lines);
  return out;
}

/// Training data often has duplicate keys; the last one counts.
OrderedJson parse(const ArrayReader::Item& item) {
  if (!item.problem.empty()) throw BadRecord(item.problem);
  try {
    return parse_ordered_json_strictly(item.text, {.unique_keys = false});
  } catch (const Error& error) {
    throw BadRecord(error.what());
  }
}

RecordCounts read_array(BufferedFile& file, const RecordOptions& options,
                        const OnRecord& on_record) {
  RecordCounts counts{.is_array = true};
  ArrayReader reader(file, options.max_bytes);
  for (ArrayReader::Item item; reader.next(item);) {
    const RecordPlace place{file.path().string(), "record", ++counts.seen};
    try {
      on_record(place, parse(item));
      counts.records += 1;
    } catch (const BadRecord& error) {
      if (options.on_bad == OnBadLine::kFail) {
        fail("bad record: {}: {}", place.str(), error.what());
      }
      counts.skipped += 1;
      if (options.report) options.report(place, error.what());
    }
  }
  counts.cut_off = reader.cut_off();
  return counts;
}

}  // namespace

std::string RecordPlace::in_file() const {
  return fmt::format("{} {}", unit, number);
}

std::string RecordPlace::str() const {
  return std::string_view(unit) == "line" ? fmt::format("{}:{}", file, number)
                                          : fmt::format("{}: {}", file, in_file());
}

bool is_record_array(const fs::path& path) {
  BufferedFile file(path);
  return is_array(file);
}

RecordCounts read_records(const fs::path& path, const RecordOptions& options,
                          const OnRecord& on_record) {
  BufferedFile file(path);
  return is_array(file) ? read_array(file, options, on_record)
                        : read_lines(file, options, on_record);
}

}  // namespace dflash::io
