// metrics.jsonl of a run.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/json.h"

namespace dflash::train {

/// metrics.jsonl: one JSON object a line, appended and flushed; opened cut to `last_step`.
class MetricsFile {
 public:
  MetricsFile(const std::filesystem::path& path, int64_t last_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void write(const Json& line);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace dflash::train
