// A file or pipe of any size, seen through a window of bounded size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace dflash::io {

class BufferedFile {
 public:
  /// Error: missing or unreadable.
  explicit BufferedFile(const std::filesystem::path& path);
  ~BufferedFile();
  BufferedFile(const BufferedFile&) = delete;
  BufferedFile& operator=(const BufferedFile&) = delete;

  /// Bytes not consumed yet, read from the file when there are none; empty: the file's end.
  std::string_view window();
  void consume(size_t bytes) { begin_ += bytes; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void fill();

  std::filesystem::path path_;
  int fd_ = -1;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace dflash::io
