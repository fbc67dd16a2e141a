// A file of records from strangers: one JSON object a line, or one JSON array of them (`.json`).
// Read in a stream either way, so never more than one record is in memory. A file whose first byte
// is `[` is an array, unless its name ends in .jsonl or .ndjson.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/json.h"
#include "io/jsonl.h"

namespace dflash::io {

struct RecordPlace {
  std::string file;
  const char* unit;  // "line" or "record"
  int64_t number;    // from 1

  std::string str() const;      // "file:3", "file: record 3"
  std::string in_file() const;  // "line 3", "record 3"
};

struct RecordOptions {
  OnBadLine on_bad = OnBadLine::kFail;
  /// Longer records are bad ones; their rest is skipped unread.
  uint64_t max_bytes = 64ULL << 20;
  /// Called for each skipped record (kSkip only).
  std::function<void(const RecordPlace& place, const std::string& reason)> report = nullptr;
};

struct RecordCounts {
  int64_t seen = 0;     ///< lines of the file, blank ones included; or values of the array
  int64_t records = 0;  ///< accepted ones
  int64_t skipped = 0;  ///< bad ones (kSkip only)
  bool is_array = false;
  /// Not empty: the file's end is cut off, and where. What is whole has been read.
  std::string cut_off = {};
};

/// Whether the file is read as an array.
bool is_record_array(const std::filesystem::path& path);

/// Calls `on_record` for each record, keys in the order of the file: of tools it lands in the
/// prompt. BadRecord from the callback rejects its record. Error: the first bad record under kFail;
/// under both policies a `.json` file that is neither, and damage in an array behind which the next
/// record cannot be told safely.
RecordCounts read_records(
    const std::filesystem::path& path, const RecordOptions& options,
    const std::function<void(const RecordPlace& place, const OrderedJson& record)>& on_record);

}  // namespace dflash::io
