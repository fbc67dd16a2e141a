// Committed tokens -> the text that a client may see: whole characters (R-SV-1), nothing of a stop
// text, and of each piece whether it was drafted. What might be the beginning of a stop text is
// held back until it is known not to be one (SV-03: later text always extends what was sent).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace dflash::serve {

struct Piece {
  std::string text;
  bool drafted = false;  // its last token was
};

class AnswerText {
 public:
  /// `tokenizer` must outlive this; no text of `stops` is empty.
  AnswerText(const text::Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer, /*skip_special=*/true), stops_(std::move(stops)) {}

  /// True: a stop text is complete, and the answer ends before it. The one that is complete first
  /// counts, so the text does not depend on how tokens were grouped.
  bool push(int64_t id, bool drafted) { return add(decoder_.push(id), drafted); }
  /// After the last token: nothing is held back any more.
  void finish();
  /// What may be shown since the last call.
  std::vector<Piece> take();

 private:
  bool add(const std::string& text, bool drafted);
  void release(size_t size);
  bool find_stop(size_t& begin) const;
  size_t held_size() const;

  text::StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;
  std::vector<Piece> held_pieces_;  // the same text
  std::vector<Piece> ready_;
  bool ended_ = false;
};

}  // namespace dflash::serve
