#include "train/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "io/line_reader.h"

namespace dflash::train {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxLineBytes = 1 << 20;

/// Hands on the lines of steps up to `last_step`; a torn last line is dropped.
void copy_lines_until(const fs::path& path, int64_t last_step, int fd) {
  io::BufferedFile file(path);
  io::LineReader reader(file, kMaxLineBytes);
  for (io::LineReader::Line line; reader.next(line);) {
    const Json value = Json::parse(line.text, nullptr, /*allow_exceptions=*/false);
    if (!value.is_object() || value.value("step", last_step + 1) > last_step) continue;
    line.text += '\n';
    write_all(fd, line.text.data(), line.text.size(), path);
  }
}

}  // namespace

MetricsFile::MetricsFile(const fs::path& path, int64_t last_step) : path_(path) {
  write_atomically(path, [&](int fd) {
    if (last_step > 0 && fs::exists(path)) copy_lines_until(path, last_step, fd);
  });
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
