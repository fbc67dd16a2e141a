// Methods of str.
#include <algorithm>
#include <map>
#include <optional>

#include "text/jinja/library.h"
#include "text/jinja/python_text.h"
#include "text/unicode.h"

namespace dflash::text::jinja {
namespace {

using Given = std::vector<std::optional<Value>>;

/// A call of a method: what it was called on, with what, and where errors go.
struct Call {
  Interpreter& at;
  const std::string& self;
  const std::string& name;
  const Arguments& arguments;

  Run& run() const { return at.run(); }
  Given take(std::initializer_list<const char*> names, size_t required) const {
    return bind_arguments("str." + name, arguments, names, required, run());
  }
  const std::string& text(const std::optional<Value>& value) const {
    if (!value->is_text()) run().fail("str.{}: expected a str, got {}", name, type_name(*value));
    return value->text();
  }
  int64_t integer(const std::optional<Value>& value, int64_t fallback) const {
    if (!value.has_value()) return fallback;
    if (!value->is_integer())
      run().fail("str.{}: expected an int, got {}", name, type_name(*value));
    return value->integer();
  }
  /// Absent or None: nothing.
  std::optional<std::string_view> optional_text(const std::optional<Value>& value) const {
    if (!value.has_value() || value->is_none()) return std::nullopt;
    return text(value);
  }
};

using Method = Value (*)(const Call&);

Value list_of(std::vector<std::string> parts, Run& run) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string& part : parts) items.push_back(make_text(std::move(part), run));
  return make_list(std::move(items), run);
}

Value stripped(const Call& call, Ends ends) {
  const Given given = call.take({"chars"}, 0);
  return Value(std::string(strip(call.self, call.optional_text(given[0]), ends)));
}

Value split_call(const Call& call, bool from_back) {
  const Given given = call.take({"sep", "maxsplit"}, 0);
  const auto separator = call.optional_text(given[0]);
  if (separator.has_value() && separator->empty()) call.run().fail("str.split: empty separator");
  const int64_t limit = call.integer(given[1], -1);
  call.run().spend(call.self.size() * 2);
  return list_of(
      from_back ? split_from_back(call.self, separator, limit) : split(call.self, separator, limit),
      call.run());
}

/// The part of the text that optional start and end select, in bytes; start beyond the end: none.
std::optional<std::pair<size_t, size_t>> window(const Call& call, const std::optional<Value>& start,
                                                const std::optional<Value>& end) {
  const auto absent = [](const std::optional<Value>& v) { return !v.has_value() || v->is_none(); };
  if (absent(start) && absent(end)) return std::pair<size_t, size_t>(0, call.self.size());
  const std::vector<size_t> begins = character_begins(call.self);
  const auto size = static_cast<int64_t>(begins.size()) - 1;
  const auto place = [&](const std::optional<Value>& bound, int64_t fallback) {
    int64_t at = absent(bound) ? fallback : call.integer(bound, fallback);
    if (at < 0) at = std::max<int64_t>(0, at < -size ? 0 : at + size);
    return at;
  };
  const int64_t from = place(start, 0), to = std::min(place(end, size), size);
  if (from > size || from > to) return std::nullopt;
  return std::pair<size_t, size_t>(begins[static_cast<size_t>(from)],
                                   begins[static_cast<size_t>(to)]);
}

Value affix(const Call& call, bool front) {
  const Given given = call.take({"prefix", "start", "end"}, 1);
  const auto part = window(call, given[1], given[2]);
  if (!part.has_value()) return false;
  const std::string_view text(call.self.data() + part->first, part->second - part->first);
  const auto matches = [&](const Value& value) {
    if (!value.is_text()) call.run().fail("str.{}: expected a str", call.name);
    return front ? text.starts_with(value.text()) : text.ends_with(value.text());
  };
  const auto* several = given[0]->object<Sequence>();
  if (several == nullptr) return matches(*given[0]);
  if (several->flavour != Flavour::kTuple) call.run().fail("str.{}: expected a str", call.name);
  return std::any_of(several->items.begin(), several->items.end(), matches);
}

/// find and its kin; -1: not there.
int64_t found(const Call& call, bool from_back) {
  const Given given = call.take({"sub", "start", "end"}, 1);
  const std::string& what = call.text(given[0]);
  const auto part = window(call, given[1], given[2]);
  if (!part.has_value()) return -1;
  call.run().spend(call.self.size());
  const std::string_view text(call.self.data() + part->first, part->second - part->first);
  const size_t at = from_back ? text.rfind(what) : text.find(what);
  if (at == std::string_view::npos) return -1;
  return count_characters(std::string_view(call.self).substr(0, part->first + at));
}

Value index_call(const Call& call, bool from_back) {
  const int64_t place = found(call, from_back);
  if (place < 0) call.run().fail("str.{}: substring not found", call.name);
  return place;
}

Value count_call(const Call& call) {
  const Given given = call.take({"sub", "start", "end"}, 1);
  const auto part = window(call, given[1], given[2]);
  if (!part.has_value()) return int64_t{0};
  call.run().spend(call.self.size());
  return count(std::string_view(call.self).substr(part->first, part->second - part->first),
               call.text(given[0]));
}

Value replace_call(const Call& call) {
  const Given given = call.take({"old", "new", "count"}, 2);
  const std::string &what = call.text(given[0]), &with = call.text(given[1]);
  call.run().spend(replaced_size(call.self, what, with));
  return Value(replace(call.self, what, with, call.integer(given[2], -1)));
}

Value cased(const Call& call, std::string (*map)(std::string_view)) {
  call.take({}, 0);
  call.run().spend(call.self.size() * 8);
  return make_text(map(call.self), call.run());
}

Value removed(const Call& call, bool front) {
  const Given given = call.take({"prefix"}, 1);
  const std::string& part = call.text(given[0]);
  if (front && call.self.starts_with(part)) return Value(call.self.substr(part.size()));
  if (!front && call.self.ends_with(part)) {
    return Value(call.self.substr(0, call.self.size() - part.size()));
  }
  return Value(call.self);
}

Value partition(const Call& call, bool from_back) {
  const Given given = call.take({"sep"}, 1);
  const std::string& mark = call.text(given[0]);
  if (mark.empty()) call.run().fail("str.{}: empty separator", call.name);
  const size_t at = from_back ? call.self.rfind(mark) : call.self.find(mark);
  std::vector<Value> parts;
  if (at == std::string::npos) {
    parts = {Value(call.self), Value(""), Value("")};
    if (from_back) std::swap(parts[0], parts[2]);
  } else {
    parts = {Value(call.self.substr(0, at)), Value(mark),
             Value(call.self.substr(at + mark.size()))};
  }
  call.run().spend(call.self.size());
  return make_tuple(std::move(parts), call.run());
}

/// center, ljust, rjust and zfill: how many characters to add before and after.
Value padded(const Call& call) {
  const bool zeros = call.name == "zfill";
  const Given given = zeros ? call.take({"width"}, 1) : call.take({"width", "fillchar"}, 1);
  const int64_t width = call.integer(given[0], 0), size = count_characters(call.self);
  const std::string fill = zeros ? "0" : given[1].has_value() ? call.text(given[1]) : " ";
  if (count_characters(fill) != 1) call.run().fail("str.{}: expected one character", call.name);
  if (width <= size) return Value(call.self);
  const auto missing = static_cast<size_t>(width - size);
  call.run().spend(std::min<size_t>(missing, SIZE_MAX / 8) * fill.size());
  size_t before = 0;
  if (call.name == "rjust" || zeros) before = missing;
  if (call.name == "center") before = missing / 2 + (missing & static_cast<size_t>(width) & 1);
  std::string out;
  std::string_view rest = call.self;
  if (zeros && (rest.starts_with('-') || rest.starts_with('+'))) {
    out += rest[0];
    rest.remove_prefix(1);
  }
  for (size_t i = 0; i < before; ++i) out += fill;
  out += rest;
  for (size_t i = before; i < missing; ++i) out += fill;
  return make_text(std::move(out), call.run());
}

/// Every character, and at least one, is in ASCII's class; other alphabets are refused.
Value all_of_class(const Call& call) {
  call.take({}, 0);
  for (const char c : call.self) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) call.run().unsupported("str." + call.name + " beyond ASCII");
    bool good = false;
    if (call.name == "isalnum") good = std::isalnum(byte) != 0;
    if (call.name == "isalpha") good = std::isalpha(byte) != 0;
    if (call.name == "isdigit" || call.name == "isdecimal" || call.name == "isnumeric") {
      good = std::isdigit(byte) != 0;
    }
    if (!good) return false;
  }
  return !call.self.empty();
}

Value all_space(const Call& call) {
  call.take({}, 0);
  return !call.self.empty() && strip(call.self, std::nullopt, Ends::kFront).empty();
}

Value all_ascii(const Call& call) {
  call.take({}, 0);
  return std::none_of(call.self.begin(), call.self.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

Value join_call(const Call& call) {
  const Given given = call.take({"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : iterate(*given[0], call.run())) {
    if (!item.is_text()) call.run().fail("str.join: expected str, got {}", type_name(item));
    call.run().spend(item.text().size() + call.self.size());
    if (!first) out += call.self;
    first = false;
    out += item.text();
  }
  return make_text(std::move(out), call.run());
}

Value lines_call(const Call& call) {
  const Given given = call.take({"keepends"}, 0);
  call.run().spend(call.self.size() * 2);
  return list_of(split_lines(call.self, given[0].has_value() && is_true(*given[0])), call.run());
}

const std::map<std::string_view, Method>& methods() {
  static const std::map<std::string_view, Method> table = {
      {"strip", [](const Call& c) { return stripped(c, Ends::kBoth); }},
      {"lstrip", [](const Call& c) { return stripped(c, Ends::kFront); }},
      {"rstrip", [](const Call& c) { return stripped(c, Ends::kBack); }},
      {"split", [](const Call& c) { return split_call(c, false); }},
      {"rsplit", [](const Call& c) { return split_call(c, true); }},
      {"splitlines", lines_call},
      {"startswith", [](const Call& c) { return affix(c, true); }},
      {"endswith", [](const Call& c) { return affix(c, false); }},
      {"find", [](const Call& c) { return Value(found(c, false)); }},
      {"rfind", [](const Call& c) { return Value(found(c, true)); }},
      {"index", [](const Call& c) { return index_call(c, false); }},
      {"rindex", [](const Call& c) { return index_call(c, true); }},
      {"count", count_call},
      {"replace", replace_call},
      {"upper", [](const Call& c) { return cased(c, to_upper); }},
      {"lower", [](const Call& c) { return cased(c, to_lower); }},
      {"title", [](const Call& c) { return cased(c, titled); }},
      {"capitalize", [](const Call& c) { return cased(c, capitalized); }},
      {"swapcase", [](const Call& c) { return cased(c, swapped_case); }},
      {"islower", [](const Call& c) { return c.take({}, 0), Value(is_lower(c.self)); }},
      {"isupper", [](const Call& c) { return c.take({}, 0), Value(is_upper(c.self)); }},
      {"isspace", all_space},
      {"isascii", all_ascii},
      {"isalnum", all_of_class},
      {"isalpha", all_of_class},
      {"isdigit", all_of_class},
      {"isdecimal", all_of_class},
      {"isnumeric", all_of_class},
      {"removeprefix", [](const Call& c) { return removed(c, true); }},
      {"removesuffix", [](const Call& c) { return removed(c, false); }},
      {"partition", [](const Call& c) { return partition(c, false); }},
      {"rpartition", [](const Call& c) { return partition(c, true); }},
      {"center", padded},
      {"ljust", padded},
      {"rjust", padded},
      {"zfill", padded},
      {"join", join_call},
      {"format",
       [](const Call& c) { return make_text(braces_format(c.at, c.self, c.arguments), c.run()); }},
  };
  return table;
}

}  // namespace

Value call_text_method(Interpreter& at, const Value& self, const std::string& name,
                       const Arguments& arguments) {
  const auto found = methods().find(name);
  if (found == methods().end()) at.run().unsupported(fmt::format("method '{}' of str", name));
  at.run().spend(self.text().size());
  if (self.is_safe()) at.run().unsupported(fmt::format("'{}' of a string marked safe", name));
  return found->second({at, self.text(), name, arguments});
}

}  // namespace dflash::text::jinja
