#include "io/line_reader.h"

namespace dflash::io {

void LineReader::append(Line& line, std::string_view text) const {
  if (line.too_long) return;
  line.text.append(text);
  if (line.text.size() > max_line_bytes_) {
    line.too_long = true;
    line.text.clear();
  }
}

bool LineReader::next(Line& line) {
  line.text.clear();
  line.too_long = line.ended = false;
  bool any = false;
  for (std::string_view window = file_.window(); !window.empty(); window = file_.window()) {
    any = true;
    const size_t feed = window.find('\n');
    append(line, window.substr(0, feed));
    if (feed != std::string_view::npos) {
      file_.consume(feed + 1);
      line.ended = true;
      if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
      return true;
    }
    file_.consume(window.size());
  }
  return any;
}

}  // namespace dflash::io
