// Added tokens ("<|im_end|>", "<think>") found in text before anything else: leftmost, then
// longest, as the reference's automaton does. Each is one id whatever BPE would make of it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace dflash::text {

class AddedTokens {
 public:
  /// `normalized` selects the tokens searched on this pass: raw text first, then normalised text.
  AddedTokens(const std::vector<AddedToken>& tokens, bool normalized, bool nfc);

  /// A stretch of the text: an added token's, or (id -1) plain text between them.
  struct Part {
    int64_t id = -1;
    size_t begin = 0, end = 0;
  };
  /// Under kPlainText the special ones are left as text; the others are matched as ever.
  std::vector<Part> split(std::string_view text, Specials specials) const;

 private:
  const AddedToken* match(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::array<std::vector<uint32_t>, 256> by_first_byte_;  // longest first
};

}  // namespace dflash::text
