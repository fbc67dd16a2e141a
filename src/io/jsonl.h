// Lines of JSON, one record a line, read in a stream: data from strangers, so a broken line is
// reported with its number and reason, and never brings more than one line into memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "io/buffered_file.h"

namespace dflash::io {

/// Thrown by a record callback to reject its record ("no \"messages\"") under the same policy as a
/// line that does not parse. Any other exception ends the reading.
class BadRecord : public Error {
 public:
  using Error::Error;
};

enum class OnBadLine { kFail, kSkip };

struct JsonlOptions {
  OnBadLine on_bad_line = OnBadLine::kFail;
  /// Longer lines are bad lines; their rest is skipped unread.
  uint64_t max_line_bytes = 64ULL << 20;
  /// Called for each skipped line (kSkip only).
  std::function<void(int64_t line, const std::string& reason)> report = nullptr;
};

struct JsonlCounts {
  int64_t lines = 0;     ///< lines of the file, blank ones included
  int64_t records = 0;   ///< accepted ones
  int64_t skipped = 0;   ///< bad lines (kSkip only)
  bool cut_off = false;  ///< the last line has no end and does not parse: a torn write, dropped
};

/// Calls `on_record` with the line number (from 1) and the value of each line. Tolerates a byte
/// order mark, CRLF and blank lines. Error (file:line: reason) at the first bad line under kFail.
JsonlCounts read_jsonl(const std::filesystem::path& path, const JsonlOptions& options,
                       const std::function<void(int64_t line, const Json& record)>& on_record);

/// The same from an opened file, keys in the order of the file. Records of datasets and prompts are
/// read by io/records.h, which calls this.
JsonlCounts read_jsonl_in_order(
    BufferedFile& file, const JsonlOptions& options,
    const std::function<void(int64_t line, const OrderedJson& record)>& on_record);

}  // namespace dflash::io
