// A whole file mapped read-only. The size is taken once from the open descriptor and every view is
// checked against it; a file that somebody cuts short afterwards raises SIGBUS, as with any
// mapping.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace dflash::io {

class MappedFile {
 public:
  /// Error: missing, unreadable, not a regular file. An empty file has no bytes.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile(std::filesystem::path path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

/// Tells the kernel that `part` of a mapping is read soon (read ahead) or no more (drop the pages;
/// they come back from the file when touched). A hint: never fails.
void will_need(std::span<const std::byte> part);
void done_with(std::span<const std::byte> part);

}  // namespace dflash::io
