#include "text/byte_alphabet.h"

#include <array>

#include "text/unicode.h"

namespace dflash::text {
namespace {

bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<char32_t, 256> symbol;
  std::array<int16_t, 0x144> byte;  // -1: not a symbol
};

const Alphabet& alphabet() {
  static const Alphabet table = [] {
    Alphabet made;
    made.byte.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t symbol = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      made.symbol[byte] = symbol;
      made.byte[symbol] = static_cast<int16_t>(byte);
    }
    return made;
  }();
  return table;
}

}  // namespace

char32_t byte_to_symbol(uint8_t byte) {
  return alphabet().symbol[byte];
}

std::string to_symbols(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 2);
  for (const char c : bytes) append_code_point(byte_to_symbol(static_cast<uint8_t>(c)), out);
  return out;
}

std::optional<std::string> from_symbols(std::string_view symbols) {
  const Alphabet& table = alphabet();
  std::string out;
  out.reserve(symbols.size());
  for (size_t at = 0; at < symbols.size();) {
    const CodePoint point = read_code_point(symbols, at);
    if (!point.valid || point.value >= table.byte.size() || table.byte[point.value] < 0) {
      return std::nullopt;
    }
    out += static_cast<char>(table.byte[point.value]);
    at += point.bytes;
  }
  return out;
}

}  // namespace dflash::text
