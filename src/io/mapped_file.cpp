#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace dflash::io {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

/// madvise wants whole pages: pages that `part` only touches are included when `widen`.
void advise(std::span<const std::byte> part, int advice, bool widen) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(part.data());
  uintptr_t end = begin + part.size();
  begin = (widen ? begin : begin + page - 1) / page * page;
  end = (widen ? end + page - 1 : end) / page * page;
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail("cannot open {}: {}", path.string(), std::strerror(errno));
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) fail("cannot read {}: {}", path.string(), strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("cannot read {}: expected a regular file", path.string());
  const auto size = static_cast<size_t>(status.st_size);
  std::span<const std::byte> bytes;
  if (size > 0) {
    void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (start == MAP_FAILED) fail("cannot map {}: {}", path.string(), std::strerror(errno));
    bytes = {static_cast<const std::byte*>(start), size};
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, bytes));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void will_need(std::span<const std::byte> part) {
  advise(part, MADV_WILLNEED, /*widen=*/true);
}

void done_with(std::span<const std::byte> part) {
  advise(part, MADV_DONTNEED, /*widen=*/false);
}

}  // namespace dflash::io
