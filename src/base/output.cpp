#include "base/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace dflash {
namespace fs = std::filesystem;
namespace {

struct Kind {
  std::string_view index, name;
};

constexpr std::array kKinds = {
    Kind{"dataset.json", "a dataset"},    Kind{"features.json", "features"},
    Kind{"run.json", "a training run"},   Kind{"progress.json", "a quickstart"},
    Kind{"summary.json", "a quickstart"}, Kind{"config.json", "a model"},
};

std::string_view kind_of(std::string_view index) {
  for (const Kind& kind : kKinds) {
    if (kind.index == index) return kind.name;
  }
  DF_ASSERT(false, "index={}", index);
  return {};
}

/// False when the owner removed the file between our open() and our lock.
bool stands_at(int fd, const fs::path& path) {
  struct stat ours = {}, there = {};
  return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

std::string owner(int fd) {
  std::array<char, 32> text = {};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  return size > 0 ? "process " + std::string(text.data(), static_cast<size_t>(size))
                  : std::string("another process");
}

}  // namespace

OutputLock::OutputLock(fs::path lock, const fs::path& output) : path_(std::move(lock)) {
  while (fd_ < 0) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail("cannot create {}: {}", path_.string(), std::strerror(errno));
    // Other errors: a disk without locks, where nothing can be known.
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      const std::string other = owner(fd_);
      ::close(fd_);
      fail("{}: {} is writing to it\n  hint: wait for that, or choose another --out",
           output.string(), other);
    }
    if (stands_at(fd_, path_)) break;
    ::close(std::exchange(fd_, -1));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd_, 0) == 0) write_all(fd_, pid.data(), pid.size(), path_);
}

OutputLock::~OutputLock() {
  ::unlink(path_.c_str());
  ::close(fd_);
}

OutputLock lock_folder(const fs::path& folder) {
  make_folder(folder);
  return OutputLock(folder / ".lock", folder);
}

OutputLock lock_file(const fs::path& file) {
  if (file.has_parent_path()) make_folder(file.parent_path());
  return OutputLock(file.string() + ".lock", file);
}

bool is_locked(const fs::path& folder) {
  const int fd = ::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return locked;
}

void claim_folder(const fs::path& folder, std::string_view index) {
  const std::string_view wanted = kind_of(index);
  for (const Kind& kind : kKinds) {
    if (kind.name == wanted || !fs::exists(folder / kind.index)) continue;
    fail("{}: expected an empty folder or one of {}, found {} ({})\n  hint: choose another --out",
         folder.string(), wanted, kind.name, kind.index);
  }
}

}  // namespace dflash
