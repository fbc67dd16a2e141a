// Case mappings of Python's str.
#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/case_tables.h"
#include "text/jinja/python_text.h"
#include "text/unicode.h"

namespace dflash::text::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;
constexpr char32_t kDottedCapitalI = 0x130;

utf8proc_category_t category_of(char32_t value) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

template <size_t N>
const Wide* find_wide(const std::array<Wide, N>& table, char32_t value) {
  const auto at = std::lower_bound(table.begin(), table.end(), value,
                                   [](const Wide& wide, char32_t v) { return wide.from < v; });
  return at != table.end() && at->from == value ? &*at : nullptr;
}

void append_wide(const Wide& wide, std::string& out) {
  for (const char32_t value : wide.to) {
    if (value != 0) append_code_point(value, out);
  }
}

void append_upper(char32_t value, std::string& out) {
  if (const Wide* wide = find_wide(kWideUpper, value)) return append_wide(*wide, out);
  append_code_point(static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(value))), out);
}

void append_title(char32_t value, std::string& out) {
  if (const Wide* wide = find_wide(kWideTitle, value)) return append_wide(*wide, out);
  append_code_point(static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(value))), out);
}

bool is_lower_character(char32_t value) {
  return category_of(value) == UTF8PROC_CATEGORY_LL || value == 0xAA || value == 0xBA;
}

bool is_upper_character(char32_t value) {
  return category_of(value) == UTF8PROC_CATEGORY_LU;
}

bool is_title_character(char32_t value) {
  return category_of(value) == UTF8PROC_CATEGORY_LT;
}

bool is_cased(char32_t value) {
  return is_lower_character(value) || is_upper_character(value) || is_title_character(value);
}

bool is_case_ignorable(char32_t value) {
  switch (category_of(value)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return value == '\'' || value == '.' || value == ':' || value == 0xB7 || value == 0x2019;
  }
}

/// The characters of a text with their bytes, so that broken ones can be kept.
struct Character {
  char32_t value;
  std::string_view bytes;
  bool valid;
};

std::vector<Character> characters_of(std::string_view text) {
  std::vector<Character> out;
  for (size_t at = 0; at < text.size();) {
    const std::string_view bytes = character_at(text, at);
    const CodePoint point = read_code_point(text, at);
    out.push_back({point.value, bytes, point.valid});
    at += bytes.size();
  }
  return out;
}

bool is_final_sigma(const std::vector<Character>& all, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(all[before - 1].value)) --before;
  if (before == 0 || !is_cased(all[before - 1].value)) return false;
  size_t after = at + 1;
  while (after < all.size() && is_case_ignorable(all[after].value)) ++after;
  return after == all.size() || !is_cased(all[after].value);
}

void append_lower(const std::vector<Character>& all, size_t at, std::string& out) {
  const char32_t value = all[at].value;
  if (value == kCapitalSigma) {
    append_code_point(is_final_sigma(all, at) ? kFinalSigma : kSmallSigma, out);
  } else if (value == kDottedCapitalI) {
    out += "i\u0307";
  } else {
    append_code_point(static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(value))), out);
  }
}

/// Calls `map(characters, place, out)` for each valid character and keeps the others.
template <typename Map>
std::string mapped(std::string_view text, const Map& map) {
  const std::vector<Character> all = characters_of(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].valid) {
      map(all, i, out);
    } else {
      out += all[i].bytes;
    }
  }
  return out;
}

}  // namespace

std::string to_upper(std::string_view text) {
  return mapped(
      text, [](const auto& all, size_t i, std::string& out) { append_upper(all[i].value, out); });
}

std::string to_lower(std::string_view text) {
  return mapped(text,
                [](const auto& all, size_t i, std::string& out) { append_lower(all, i, out); });
}

std::string capitalized(std::string_view text) {
  return mapped(text, [](const auto& all, size_t i, std::string& out) {
    if (i == 0) return append_title(all[i].value, out);
    append_lower(all, i, out);
  });
}

std::string titled(std::string_view text) {
  return mapped(text, [](const auto& all, size_t i, std::string& out) {
    if (i > 0 && is_cased(all[i - 1].value)) return append_lower(all, i, out);
    append_title(all[i].value, out);
  });
}

std::string swapped_case(std::string_view text) {
  return mapped(text, [](const auto& all, size_t i, std::string& out) {
    if (is_upper_character(all[i].value)) return append_lower(all, i, out);
    if (is_lower_character(all[i].value)) return append_upper(all[i].value, out);
    append_code_point(all[i].value, out);
  });
}

bool is_lower(std::string_view text) {
  bool some = false;
  for (const Character& c : characters_of(text)) {
    if (is_upper_character(c.value) || is_title_character(c.value)) return false;
    some = some || is_lower_character(c.value);
  }
  return some;
}

bool is_upper(std::string_view text) {
  bool some = false;
  for (const Character& c : characters_of(text)) {
    if (is_lower_character(c.value) || is_title_character(c.value)) return false;
    some = some || is_upper_character(c.value);
  }
  return some;
}

}  // namespace dflash::text::jinja
