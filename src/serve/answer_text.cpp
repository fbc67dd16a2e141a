#include "serve/answer_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace dflash::serve {

void AnswerText::finish() {
  add(decoder_.flush(), /*drafted=*/false);
  if (!ended_) release(held_.size());
  ended_ = true;
}

std::vector<Piece> AnswerText::take() {
  return std::exchange(ready_, {});
}

bool AnswerText::add(const std::string& text, bool drafted) {
  if (ended_ || text.empty()) return ended_;
  held_ += text;
  held_pieces_.push_back({text, drafted});
  size_t begin = 0;
  ended_ = find_stop(begin);
  release(ended_ ? begin : held_.size() - held_size());
  return ended_;
}

/// The first `size` bytes of what is held are known not to belong to a stop text.
void AnswerText::release(size_t size) {
  held_.erase(0, size);
  auto piece = held_pieces_.begin();
  for (; size > 0 && piece->text.size() <= size; ++piece) {
    size -= piece->text.size();
    ready_.push_back(std::move(*piece));
  }
  if (size > 0) {
    ready_.push_back({piece->text.substr(0, size), piece->drafted});
    piece->text.erase(0, size);
  }
  held_pieces_.erase(held_pieces_.begin(), piece);
}

/// The stop text that ends first; of several the longest.
bool AnswerText::find_stop(size_t& begin) const {
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const bool better = end == std::string::npos || at + stop.size() < end ||
                        (at + stop.size() == end && at < begin);
    if (!better) continue;
    begin = at;
    end = at + stop.size();
  }
  return end != std::string::npos;
}

/// Bytes at the end that begin a stop text.
size_t AnswerText::held_size() const {
  size_t most = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > most; --size) {
      if (held_.ends_with(std::string_view(stop).substr(0, size))) most = size;
    }
  }
  return most;
}

}  // namespace dflash::serve
