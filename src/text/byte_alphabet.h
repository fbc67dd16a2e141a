// The byte-level alphabet: every byte has a printable character, so that any text is a string of
// 256 known symbols (MODELS.md 8.1, step 4).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dflash::text {

/// 33-126, 161-172 and 174-255 stand for themselves; the other 68 bytes, in increasing order, for
/// U+0100, U+0101, ...
char32_t byte_to_symbol(uint8_t byte);

/// Bytes -> string of symbols, as vocabularies spell them (" t" -> "Ġt").
std::string to_symbols(std::string_view bytes);

/// The inverse; nothing when a character is outside the alphabet.
std::optional<std::string> from_symbols(std::string_view symbols);

}  // namespace dflash::text
