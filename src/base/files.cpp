#include "base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace dflash {
namespace fs = std::filesystem;

void write_all(int fd, const void* bytes, uint64_t size, const fs::path& path) {
  const char* cursor = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(fd, cursor, std::min<uint64_t>(size, 1ULL << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      fail("cannot write {}: {}\n  hint: free disk space or choose another folder", path.string(),
           std::strerror(errno));
    }
    cursor += written;
    size -= static_cast<uint64_t>(written);
  }
}

void write_atomically(const fs::path& path, const std::function<void(int fd)>& write) {
  if (path.has_parent_path()) make_folder(path.parent_path());
  const fs::path temporary = path.string() + ".tmp." + std::to_string(::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("cannot create {}: {}", temporary.string(), std::strerror(errno));
  try {
    write(fd);
    if (::fsync(fd) != 0) fail("cannot sync {}: {}", temporary.string(), std::strerror(errno));
  } catch (...) {
    ::close(fd);
    ::unlink(temporary.c_str());
    throw;
  }
  ::close(fd);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail("cannot rename {} to {}: {}", temporary.string(), path.string(), std::strerror(error));
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void write_text(const fs::path& path, std::string_view text) {
  write_atomically(path, [&](int fd) { write_all(fd, text.data(), text.size(), path); });
}

void write_json(const fs::path& path, const Json& value) {
  std::string text;
  try {
    text = value.dump(2) + "\n";
  } catch (const Json::exception& e) {
    fail("cannot write {}: {}", path.string(), e.what());
  }
  write_text(path, text);
}

std::string read_text(const fs::path& path, uint64_t max_bytes) {
  std::error_code code;
  const auto size = fs::file_size(path, code);
  if (code) fail("cannot read {}: {}", path.string(), code.message());
  if (size > max_bytes) {
    fail("cannot read {}: {} bytes, at most {} are allowed here", path.string(), size, max_bytes);
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  if (!stream) fail("cannot read {}: it ended before its {} bytes", path.string(), size);
  return text;
}

Json read_json(const fs::path& path) {
  const std::string text = read_text(path);
  try {
    return Json::parse(text);
  } catch (const std::exception& e) {
    fail("not valid JSON: {}: {}", path.string(), e.what());
  }
}

void make_folder(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code && !fs::is_directory(path)) {
    fail("cannot create folder {}: {}", path.string(), code.message());
  }
}

void sync_folder(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

void require_free_space(const fs::path& folder, uint64_t bytes) {
  std::error_code code;
  const auto space = fs::space(folder, code);
  if (!code && space.available < bytes) {
    fail(
        "disk nearly full: {}: {} MB needed, {} MB free\n  hint: free space or choose another "
        "folder",
        folder.string(), bytes >> 20, space.available >> 20);
  }
}

}  // namespace dflash
