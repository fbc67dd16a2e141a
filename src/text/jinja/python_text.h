// Python's str and float as functions on UTF-8: places count characters, white space and case are
// Unicode's. Bytes that are no UTF-8 count as one character each and are kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dflash::text::jinja {

/// str.isspace: White_Space and the four separators U+001C to U+001F.
bool is_space(char32_t value);

/// Begins of the characters, and the end of the text.
std::vector<size_t> character_begins(std::string_view text);
int64_t count_characters(std::string_view text);
/// The code point that begins at `at`, with its length.
std::string_view character_at(std::string_view text, size_t at);

/// Strips white space, or the characters of `set`, from the front and the back as asked.
enum class Ends { kBoth, kFront, kBack };
std::string_view strip(std::string_view text, std::optional<std::string_view> set, Ends ends);

/// At most `limit` cuts; negative: all. Without a separator runs of white space separate.
std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t limit);
std::vector<std::string> split_from_back(std::string_view text,
                                         std::optional<std::string_view> separator, int64_t limit);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
/// At most `limit` replacements; negative: all. An empty `what` is found between all characters.
std::string replace(std::string_view text, std::string_view what, std::string_view with,
                    int64_t limit);
/// Length of what replace gives.
size_t replaced_size(std::string_view text, std::string_view what, std::string_view with);
int64_t count(std::string_view text, std::string_view what);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// str.capitalize and str.title.
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);
std::string swapped_case(std::string_view text);
/// At least one cased character, and none of the other case.
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);

/// repr of a str and of a float.
std::string quoted_text(std::string_view text);
std::string float_text(double value);

/// int(text, base) and float(text); nothing where Python raises ValueError.
std::optional<int64_t> parse_integer(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

std::string html_escaped(std::string_view text);

}  // namespace dflash::text::jinja
