#include "text/jinja/literal.h"

#include <charconv>

#include "base/error.h"
#include "text/unicode.h"

namespace dflash::text::jinja {
namespace {

void append_checked(uint32_t value, std::string_view escape, std::string& out) {
  if ((value >= 0xD800 && value < 0xE000) || value > 0x10FFFF) {
    fail("escape '{}': expected a character", escape);
  }
  append_code_point(value, out);
}

/// Exactly `digits` hexadecimal digits after `\x`, `\u` or `\U`; the place after them.
size_t hexadecimal(std::string_view text, size_t at, size_t digits, std::string& out) {
  const std::string_view escape = text.substr(at, 2 + digits);
  uint32_t value = 0;
  const auto got = std::from_chars(escape.data() + 2, escape.data() + escape.size(), value, 16);
  if (escape.size() != 2 + digits || got.ec != std::errc() ||
      got.ptr != escape.data() + escape.size()) {
    fail("escape '{}': expected {} hexadecimal digits", escape, digits);
  }
  append_checked(value, escape, out);
  return at + escape.size();
}

size_t octal(std::string_view text, size_t at, std::string& out) {
  uint32_t value = 0;
  size_t end = at + 1;
  for (; end < text.size() && end < at + 4 && text[end] >= '0' && text[end] <= '7'; ++end) {
    value = value * 8 + static_cast<uint32_t>(text[end] - '0');
  }
  append_checked(value, text.substr(at, end - at), out);
  return end;
}

/// The character of a one-letter escape; 0: it is none.
char simple(char letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return letter;
    default:
      return 0;
  }
}

/// One escape that begins at `at`; the place after it.
size_t escape(std::string_view text, size_t at, std::string& out) {
  const char letter = text[at + 1];
  if (const char one = simple(letter); one != 0) {
    out += one;
    return at + 2;
  }
  if (letter == '\n') return at + 2;
  if (letter == 'x') return hexadecimal(text, at, 2, out);
  if (letter == 'u') return hexadecimal(text, at, 4, out);
  if (letter == 'U') return hexadecimal(text, at, 8, out);
  if (letter == 'N') fail("escape '\\N' is not supported");
  if (letter >= '0' && letter <= '7') return octal(text, at, out);
  out += '\\';  // an unknown escape stays as it is
  if (static_cast<uint8_t>(letter) < 0x80) {
    out += letter;
    return at + 2;
  }
  // jinja2 writes characters beyond ASCII as escapes first, and the backslash then escapes theirs.
  const CodePoint point = read_code_point(text, at + 1);
  const auto value = static_cast<uint32_t>(point.value);
  out += value < 0x100     ? fmt::format("x{:02x}", value)
         : value < 0x10000 ? fmt::format("u{:04x}", value)
                           : fmt::format("U{:08x}", value);
  return at + 1 + point.bytes;
}

}  // namespace

std::string unescaped(std::string_view literal) {
  std::string out;
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] == '\\' && at + 1 < literal.size()) {
      at = escape(literal, at, out);
    } else {
      out += literal[at++];
    }
  }
  return out;
}

}  // namespace dflash::text::jinja
