// Lines of a file of any size, in bounded memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/buffered_file.h"

namespace dflash::io {

class LineReader {
 public:
  struct Line {
    std::string text;       // without its end (LF or CRLF)
    bool too_long = false;  // `text` is empty then
    bool ended = false;     // false: the file stopped before a line feed
  };

  /// Reads on from where `file`, which must outlive the reader, stands.
  LineReader(BufferedFile& file, uint64_t max_line_bytes)
      : file_(file), max_line_bytes_(max_line_bytes) {}

  /// False at the end of the file.
  bool next(Line& line);

 private:
  void append(Line& line, std::string_view text) const;

  BufferedFile& file_;
  uint64_t max_line_bytes_;
};

}  // namespace dflash::io
