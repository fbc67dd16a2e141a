#include "io/buffered_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace dflash::io {

BufferedFile::BufferedFile(const std::filesystem::path& path) : path_(path), buffer_(1 << 18) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) fail("cannot open {}: {}", path.string(), std::strerror(errno));
}

BufferedFile::~BufferedFile() {
  ::close(fd_);
}

std::string_view BufferedFile::window() {
  if (begin_ == end_) fill();
  return {buffer_.data() + begin_, end_ - begin_};
}

void BufferedFile::fill() {
  ssize_t got = 0;
  do {
    got = ::read(fd_, buffer_.data(), buffer_.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) fail("cannot read {}: {}", path_.string(), std::strerror(errno));
  begin_ = 0;
  end_ = static_cast<size_t>(got);
}

}  // namespace dflash::io
