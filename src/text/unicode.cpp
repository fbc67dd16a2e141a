#include "text/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <unordered_set>

#include "base/error.h"

namespace dflash::text {
namespace {

/// What a lead byte promises: number of continuation bytes and the range of the first of them.
struct Lead {
  int continuations = -1;
  uint8_t low = 0x80, high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {0};
  if (byte < 0xC2 || byte > 0xF4) return {};
  if (byte < 0xE0) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {3};
}

/// Characters that stand at second or later places of a canonical decomposition: only these (and
/// combining marks) can be drawn into the character before them.
const std::unordered_set<char32_t>& trailing_characters() {
  static const std::unordered_set<char32_t> set = [] {
    std::unordered_set<char32_t> found;
    for (utf8proc_int32_t value = 0xC0; value < 0x30000; ++value) {
      std::array<utf8proc_int32_t, 16> parts;
      int last_class = 0;
      const auto count = utf8proc_decompose_char(value, parts.data(), parts.size(),
                                                 UTF8PROC_DECOMPOSE, &last_class);
      for (utf8proc_ssize_t i = 1; i < count; ++i) found.insert(parts[i]);
    }
    return found;
  }();
  return set;
}

struct Decomposition {
  char32_t first;
  bool itself;  // the character has no decomposition
};

Decomposition decompose(char32_t value) {
  std::array<utf8proc_int32_t, 16> parts;
  int last_class = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(value), parts.data(),
                                             parts.size(), UTF8PROC_DECOMPOSE, &last_class);
  DF_ASSERT(count >= 1 && count <= 16, "decomposition of {:x}: {}", uint32_t{value}, count);
  const auto first = static_cast<char32_t>(parts[0]);
  return {first, count == 1 && first == value};
}

/// No composition and no reordering crosses the place before such a character.
bool starts_segment(char32_t value) {
  if (value < 0x300) return true;
  const char32_t first = decompose(value).first;
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(first));
  return property->combining_class == 0 && !trailing_characters().contains(first);
}

void append_same(std::string_view segment, size_t begin, MappedText& out) {
  for (size_t i = 0; i < segment.size(); ++i) {
    out.origin.push_back(static_cast<uint32_t>(begin + i));
  }
  out.text += segment;
}

void append_composed(std::string_view segment, size_t begin, MappedText& out) {
  utf8proc_uint8_t* raw = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(segment.data()),
                   static_cast<utf8proc_ssize_t>(segment.size()), &raw,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  DF_ASSERT(size >= 0, "utf8proc: {}", utf8proc_errmsg(size));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(raw, &std::free);
  const std::string_view composed(reinterpret_cast<const char*>(raw), static_cast<size_t>(size));
  if (composed == segment) return append_same(segment, begin, out);
  out.text += composed;
  out.origin.insert(out.origin.end(), composed.size(), static_cast<uint32_t>(begin));
}

bool below_first_combining(std::string_view text) {
  // Lead bytes up to 0xCB encode code points below U+0300, which NFC leaves alone.
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0xCC) return false;
  }
  return true;
}

}  // namespace

CodePoint read_code_point(std::string_view text, size_t at) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead_byte = byte_at(at);
  const Lead lead = lead_of(lead_byte);
  if (lead.continuations < 0) return {};
  if (lead.continuations == 0) return {lead_byte, 1, true, false};
  char32_t value = lead_byte & (0x3F >> lead.continuations);
  for (int i = 1; i <= lead.continuations; ++i) {
    const auto length = static_cast<uint32_t>(i);
    if (at + length >= text.size()) return {0xFFFD, length, false, true};
    const uint8_t byte = byte_at(at + length);
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!fits) return {0xFFFD, length, false, false};
    value = (value << 6) | (byte & 0x3F);
  }
  return {value, static_cast<uint32_t>(lead.continuations) + 1, true, false};
}

void append_code_point(char32_t value, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (value < 0x80) return put(value);
  if (value < 0x800) {
    put(0xC0 | (value >> 6));
  } else if (value < 0x10000) {
    put(0xE0 | (value >> 12));
    put(0x80 | ((value >> 6) & 0x3F));
  } else {
    put(0xF0 | (value >> 18));
    put(0x80 | ((value >> 12) & 0x3F));
    put(0x80 | ((value >> 6) & 0x3F));
  }
  put(0x80 | (value & 0x3F));
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const CodePoint point = read_code_point(text, at);
    if (!point.valid) return false;
    at += point.bytes;
  }
  return true;
}

MappedText repair_utf8(std::string_view text) {
  MappedText out;
  if (is_valid_utf8(text)) {
    out.text = text;
    return out;
  }
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = read_code_point(text, at);
    const size_t before = out.text.size();
    if (point.valid) {
      append_same(text.substr(at, point.bytes), at, out);
    } else {
      append_code_point(0xFFFD, out.text);
      out.origin.insert(out.origin.end(), out.text.size() - before, static_cast<uint32_t>(at));
    }
    at += point.bytes;
  }
  return out;
}

size_t truncated_tail_bytes(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t at = text.size() - back;
    if ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) continue;
    const CodePoint point = read_code_point(text, at);
    return point.truncated && point.bytes == back ? back : 0;
  }
  return 0;
}

MappedText nfc(std::string_view text) {
  MappedText out;
  if (below_first_combining(text)) {
    out.text = text;
    return out;
  }
  out.text.reserve(text.size());
  out.origin.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint head = read_code_point(text, at);
    size_t end = at + head.bytes;
    while (end < text.size()) {
      const CodePoint next = read_code_point(text, end);
      if (starts_segment(next.value)) break;
      end += next.bytes;
    }
    const std::string_view segment = text.substr(at, end - at);
    const bool alone = segment.size() == head.bytes;
    if (alone && (head.value < 0x300 || decompose(head.value).itself)) {
      append_same(segment, at, out);
    } else {
      append_composed(segment, at, out);
    }
    at = end;
  }
  return out;
}

bool is_white_space(char32_t value) {
  return (value >= 9 && value <= 13) || value == 0x20 || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 ||
         value == 0x2029 || value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_word(char32_t value) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // circled letters are alphabetic symbols; U+200C and U+200D join
      return value == 0x200C || value == 0x200D || (value >= 0x24B6 && value <= 0x24E9);
  }
}

}  // namespace dflash::text
