// UTF-8 as the tokenizer needs it: lossy repair, NFC, character classes. Every transformed text
// carries the map back to the bytes it came from, so that a token's place in the caller's own
// string is known. Classes are those of Rust's `char` and `regex`, which the reference uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dflash::text {

/// One step through bytes that may be broken. A broken sequence counts as U+FFFD over its maximal
/// subpart (Unicode 3.9, "best practice"), as Rust's and Python's lossy decoders do.
struct CodePoint {
  char32_t value = 0xFFFD;
  uint32_t bytes = 1;
  bool valid = false;
  bool truncated = false;  // a correct beginning, cut by the end of the text
};

/// at < text.size().
CodePoint read_code_point(std::string_view text, size_t at);
void append_code_point(char32_t value, std::string& out);

/// A text and, for every byte of it, the byte of the source it came from. Empty `origin`: identity.
struct MappedText {
  std::string text;
  std::vector<uint32_t> origin;

  size_t source_of(size_t at) const { return origin.empty() ? at : origin[at]; }
};

bool is_valid_utf8(std::string_view text);
/// Broken sequences replaced by U+FFFD.
MappedText repair_utf8(std::string_view text);
/// Bytes at the end that begin a code point correctly but do not finish it: 0 to 3.
size_t truncated_tail_bytes(std::string_view text);

/// Canonical composition of valid UTF-8. A composed character comes from the first byte of the
/// characters it was made of.
MappedText nfc(std::string_view text);

/// White_Space, Rust's and Oniguruma's `\s`.
bool is_white_space(char32_t value);
/// `\w`: letters, marks, decimal digits, letter numbers, connectors, joiners.
bool is_word(char32_t value);

}  // namespace dflash::text
