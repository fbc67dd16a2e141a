#include "train/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/files.h"

namespace dflash::train {
namespace fs = std::filesystem;
namespace {

/// Lines of steps up to `last_step`; a torn last line is dropped.
std::string lines_until(const fs::path& path, int64_t last_step) {
  std::string kept;
  if (last_step <= 0 || !fs::exists(path)) return kept;
  std::istringstream stream(read_text(path));
  for (std::string line; std::getline(stream, line);) {
    const Json value = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!value.is_object() || value.value("step", last_step + 1) > last_step) continue;
    kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const fs::path& path, int64_t last_step) : path_(path) {
  write_text(path, lines_until(path, last_step));
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) fail("cannot open {}: {}", path.string(), std::strerror(errno));
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::write(const Json& line) {
  const std::string text = line.dump() + "\n";
  write_all(fd_, text.data(), text.size(), path_);
}

}  // namespace dflash::train
