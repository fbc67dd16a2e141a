// Lines of a file of any size, in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace dflash::io {

class LineReader {
 public:
  struct Line {
    std::string text;       // without its end (LF or CRLF)
    bool too_long = false;  // `text` is empty then
    bool ended = false;     // false: the file stopped before a line feed
  };

  /// Error: missing or unreadable.
  LineReader(const std::filesystem::path& path, uint64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// False at the end of the file.
  bool next(Line& line);

 private:
  bool fill();
  void append(Line& line, const char* from, size_t size) const;

  std::filesystem::path path_;
  uint64_t max_line_bytes_;
  int fd_ = -1;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace dflash::io
