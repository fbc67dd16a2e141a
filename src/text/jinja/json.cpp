// json.dumps: what `tojson` writes. Not a general writer: it follows Python's spelling of numbers,
// keys and escapes.
#include <algorithm>
#include <cmath>

#include "text/jinja/library.h"
#include "text/jinja/python_text.h"
#include "text/unicode.h"

namespace dflash::text::jinja {
namespace {

class Writer {
 public:
  Writer(const JsonStyle& style, Run& run) : style_(style), run_(run) {}

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void put(std::string_view part) {
    run_.spend(part.size());
    out_ += part;
  }

  void new_line(int level) {
    if (!style_.lines) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(style_.indent);
  }

  void write(const Value& value, int level) {
    run_.step();
    if (value.is_none()) return put("null");
    if (const auto* flag = value.as<bool>()) return put(*flag ? "true" : "false");
    if (value.is_integer()) return put(std::to_string(value.integer()));
    if (const auto* number = value.as<double>()) return put(number_text(*number));
    if (value.is_text()) return write_text(value.text());
    if (const auto* dict = value.object<Dict>()) return write_dict(*dict, level);
    const auto* sequence = value.object<Sequence>();
    if (sequence == nullptr || sequence->flavour > Flavour::kTuple) {
      if (const auto* undefined = value.as<Undefined>()) {
        run_.fail("tojson of an undefined value: {}", *undefined->why);
      }
      run_.fail("tojson of a {}", type_name(value));
    }
    if (sequence->items.empty()) return put("[]");
    put("[");
    for (size_t i = 0; i < sequence->items.size(); ++i) {
      if (i > 0) put(style_.item_separator);
      new_line(level + 1);
      write(sequence->items[i], level + 1);
    }
    new_line(level);
    put("]");
  }

  static std::string number_text(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  void write_key(const Value& key) {
    if (key.is_text()) return write_text(key.text());
    put("\"");
    if (!key.is_number() && !key.is_none()) run_.fail("tojson: a {} as a key", type_name(key));
    write(key, 0);
    put("\"");
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.entries.empty()) return put("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* left, const auto* right) {
        return less(left->first, right->first, run_);
      });
    }
    put("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) put(style_.item_separator);
      new_line(level + 1);
      write_key(entries[i]->first);
      put(style_.key_separator);
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    put("}");
  }

  void write_text(const std::string& text) {
    run_.spend(text.size() + 2);
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const std::string_view one = character_at(text, at);
      const CodePoint point = read_code_point(text, at);
      at += one.size();
      escape(one, point);
    }
    out_ += '"';
  }

  void escape(std::string_view one, const CodePoint& point) {
    const char c = one[0];
    if (one.size() == 1 && c != '\0' && std::string_view("\"\\\n\r\t\f\b").find(c) != npos) {
      static constexpr std::string_view letters = "\"\\nrtfb";
      out_ += '\\';
      out_ += letters[std::string_view("\"\\\n\r\t\f\b").find(c)];
    } else if (point.valid && (point.value < 0x20 || (style_.ascii && point.value >= 0x7F))) {
      put_units(point.value);
    } else {
      out_ += one;
    }
  }

  /// \uXXXX, as a surrogate pair where one unit is not enough.
  void put_units(char32_t value) {
    auto number = static_cast<uint32_t>(value);
    if (number >= 0x10000) {
      number -= 0x10000;
      put(fmt::format("\\u{:04x}", 0xD800 + (number >> 10)));
      number = 0xDC00 + (number & 0x3FF);
    }
    put(fmt::format("\\u{:04x}", number));
  }

  static constexpr size_t npos = std::string_view::npos;
  const JsonStyle& style_;
  Run& run_;
  std::string out_;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Run& run) {
  return Writer(style, run).run(value);
}

}  // namespace dflash::text::jinja
