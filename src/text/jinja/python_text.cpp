#include "text/jinja/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "text/unicode.h"

namespace dflash::text::jinja {
namespace {

bool in_set(std::string_view character, std::optional<std::string_view> set) {
  if (!set.has_value()) return is_space(read_code_point(character, 0).value);
  for (size_t at = 0; at < set->size();) {
    const std::string_view other = character_at(*set, at);
    if (other == character) return true;
    at += other.size();
  }
  return false;
}

size_t last_begin(std::string_view text) {
  size_t at = text.size() - 1;
  for (int back = 0; back < 3 && at > 0; ++back) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) != 0x80) break;
    --at;
  }
  return character_at(text, at).size() == text.size() - at ? at : text.size() - 1;
}

bool is_line_end(char32_t value) {
  return (value >= 0x0A && value <= 0x0D) || (value >= 0x1C && value <= 0x1E) || value == 0x85 ||
         value == 0x2028 || value == 0x2029;
}

/// Words between runs of white space, from the front.
std::vector<std::string> split_words(std::string_view text, int64_t limit) {
  std::vector<std::string> out;
  text = strip(text, std::nullopt, Ends::kFront);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.emplace_back(strip(text, std::nullopt, Ends::kFront));
      return out;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(read_code_point(text, end).value)) {
      end += character_at(text, end).size();
    }
    out.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), std::nullopt, Ends::kFront);
  }
  return out;
}

bool is_printable(char32_t value) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return value == ' ';
    default:
      return true;
  }
}

std::string escaped_code_point(char32_t value) {
  const auto number = static_cast<uint32_t>(value);
  if (value == '\n') return "\\n";
  if (value == '\r') return "\\r";
  if (value == '\t') return "\\t";
  if (value < 0x100) return fmt::format("\\x{:02x}", number);
  if (value < 0x10000) return fmt::format("\\u{:04x}", number);
  return fmt::format("\\U{:08x}", number);
}

/// Without the underscores that Python allows between digits; nothing where they are misplaced.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

bool is_space(char32_t value) {
  return is_white_space(value) || (value >= 0x1C && value <= 0x1F);
}

std::string_view character_at(std::string_view text, size_t at) {
  const CodePoint point = read_code_point(text, at);
  return text.substr(at, point.valid ? point.bytes : 1);
}

std::vector<size_t> character_begins(std::string_view text) {
  std::vector<size_t> out;
  for (size_t at = 0; at < text.size(); at += character_at(text, at).size()) out.push_back(at);
  out.push_back(text.size());
  return out;
}

int64_t count_characters(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += character_at(text, at).size()) ++count;
  return count;
}

std::string_view strip(std::string_view text, std::optional<std::string_view> set, Ends ends) {
  while (ends != Ends::kBack && !text.empty()) {
    const std::string_view first = character_at(text, 0);
    if (!in_set(first, set)) break;
    text.remove_prefix(first.size());
  }
  while (ends != Ends::kFront && !text.empty()) {
    const size_t last = last_begin(text);
    if (!in_set(text.substr(last), set)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t limit) {
  if (!separator.has_value()) return split_words(text, limit);
  std::vector<std::string> out;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = text.find(*separator);
    if (at == std::string_view::npos) break;
    out.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator->size());
  }
  out.emplace_back(text);
  return out;
}

std::vector<std::string> split_from_back(std::string_view text,
                                         std::optional<std::string_view> separator, int64_t limit) {
  if (limit < 0) return split(text, separator, limit);
  std::vector<std::string> out;
  if (!separator.has_value()) text = strip(text, std::nullopt, Ends::kBack);
  const auto more = [&] { return static_cast<int64_t>(out.size()) < limit; };
  while (separator.has_value() && more()) {
    const size_t at = text.rfind(*separator);
    if (at == std::string_view::npos) break;
    out.emplace_back(text.substr(at + separator->size()));
    text = text.substr(0, at);
  }
  while (!separator.has_value() && !text.empty() && more()) {
    size_t begin = text.size();
    while (begin > 0) {
      const size_t last = last_begin(text.substr(0, begin));
      if (is_space(read_code_point(text, last).value)) break;
      begin = last;
    }
    out.emplace_back(text.substr(begin));
    text = strip(text.substr(0, begin), std::nullopt, Ends::kBack);
  }
  if (separator.has_value() || !text.empty()) out.emplace_back(text);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + character_at(text, at).size();
    const char32_t value = read_code_point(text, at).value;
    if (is_line_end(value)) {
      if (value == '\r' && end < text.size() && text[end] == '\n') ++end;
      out.emplace_back(text.substr(begin, (keep_ends ? end : at) - begin));
      begin = end;
    }
    at = end;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

int64_t count(std::string_view text, std::string_view what) {
  if (what.empty()) return count_characters(text) + 1;
  int64_t found = 0;
  for (size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + what.size())) {
    ++found;
  }
  return found;
}

size_t replaced_size(std::string_view text, std::string_view what, std::string_view with) {
  const auto found = static_cast<size_t>(count(text, what));
  return text.size() - (what.empty() ? 0 : found * what.size()) + found * with.size();
}

std::string replace(std::string_view text, std::string_view what, std::string_view with,
                    int64_t limit) {
  std::string out;
  size_t begin = 0;
  int64_t done = 0;
  const auto more = [&] { return limit < 0 || done < limit; };
  if (what.empty()) {
    for (size_t at = 0; at <= text.size() && more(); ++done) {
      out += with;
      if (at == text.size()) return out;
      const std::string_view one = character_at(text, at);
      out += one;
      begin = at += one.size();
    }
  }
  while (!what.empty() && more()) {
    const size_t at = text.find(what, begin);
    if (at == std::string_view::npos) break;
    out += text.substr(begin, at - begin);
    out += with;
    begin = at + what.size();
    ++done;
  }
  return out += text.substr(begin);
}

std::string quoted_text(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const std::string_view one = character_at(text, at);
    const CodePoint point = read_code_point(text, at);
    at += one.size();
    if (point.valid && (point.value == static_cast<char32_t>(quote) || point.value == '\\')) {
      out += '\\';
      out += one;
    } else if (!point.valid || is_printable(point.value)) {
      out += one;
    } else {
      out += escaped_code_point(point.value);
    }
  }
  return out += quote;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  const size_t mark = text.find('e');
  const int exponent = std::atoi(text.c_str() + mark + 1);
  if (exponent < -4 || exponent >= 16) return text;
  // Shortest digits in plain notation.
  const auto plain =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  text.assign(buffer.data(), plain.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  const auto digits = without_underscores(strip(text, std::nullopt, Ends::kBoth));
  if (!digits.has_value()) return std::nullopt;
  std::string_view rest = *digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  const auto prefix = [&](const char* lower, const char* upper) {
    if (!rest.starts_with(lower) && !rest.starts_with(upper)) return false;
    rest.remove_prefix(2);
    return true;
  };
  if ((base == 16 || base == 0) && prefix("0x", "0X")) base = 16;
  if ((base == 8 || base == 0) && prefix("0o", "0O")) base = 8;
  if ((base == 2 || base == 0) && prefix("0b", "0B")) base = 2;
  if (base == 0) base = 10;
  int64_t value = 0;
  if (rest.starts_with('-')) return std::nullopt;
  const auto got = std::from_chars(rest.data(), rest.data() + rest.size(), value, base);
  if (got.ec == std::errc::result_out_of_range) fail("integer '{}': expected 64 bits", text);
  if (got.ec != std::errc() || got.ptr != rest.data() + rest.size()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  const auto digits = without_underscores(strip(text, std::nullopt, Ends::kBoth));
  if (!digits.has_value() || digits->empty()) return std::nullopt;
  const std::string_view rest = *digits;
  // strtod also reads hexadecimal numbers, "nan(...)" and leading white space.
  if (rest.find_first_of("xX(") != std::string_view::npos) return std::nullopt;
  if (std::isspace(static_cast<unsigned char>(rest[0])) != 0) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits->c_str(), &end);
  if (end != digits->c_str() + digits->size()) return std::nullopt;
  return value;
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace dflash::text::jinja
