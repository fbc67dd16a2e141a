#include "io/line_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace dflash::io {

LineReader::LineReader(const std::filesystem::path& path, uint64_t max_line_bytes)
    : path_(path), max_line_bytes_(max_line_bytes), buffer_(1 << 18) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) fail("cannot open {}: {}", path.string(), std::strerror(errno));
}

LineReader::~LineReader() {
  ::close(fd_);
}

bool LineReader::fill() {
  ssize_t got = 0;
  do {
    got = ::read(fd_, buffer_.data(), buffer_.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) fail("cannot read {}: {}", path_.string(), std::strerror(errno));
  begin_ = 0;
  end_ = static_cast<size_t>(got);
  return got > 0;
}

void LineReader::append(Line& line, const char* from, size_t size) const {
  if (line.too_long) return;
  line.text.append(from, size);
  if (line.text.size() > max_line_bytes_) {
    line.too_long = true;
    line.text.clear();
  }
}

bool LineReader::next(Line& line) {
  line.text.clear();
  line.too_long = line.ended = false;
  bool any = false;
  while (begin_ < end_ || fill()) {
    any = true;
    const char* start = buffer_.data() + begin_;
    const auto* feed = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
    const size_t size = feed == nullptr ? end_ - begin_ : static_cast<size_t>(feed - start);
    append(line, start, size);
    begin_ += size;
    if (feed != nullptr) {
      begin_ += 1;
      line.ended = true;
      if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
      return true;
    }
  }
  return any;
}

}  // namespace dflash::io
