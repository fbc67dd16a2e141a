// base.name and base[key]. Values are looked at as Python's objects are: `.name` prefers a method
// to an entry of that name, `[key]` the entry.
#include <algorithm>
#include <array>

#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"
#include "text/jinja/python_text.h"

namespace dflash::text::jinja {
namespace {

constexpr std::array<std::string_view, 11> kDictMethods = {
    "clear", "copy",    "fromkeys",   "get",    "items", "keys",
    "pop",   "popitem", "setdefault", "update", "values"};
constexpr std::array<std::string_view, 11> kListMethods = {"append", "clear",   "copy",   "count",
                                                           "extend", "index",   "insert", "pop",
                                                           "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 47> kTextMethods = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr std::array<std::string_view, 12> kNumberMethods = {
    "real",      "imag",     "numerator",  "denominator", "conjugate",  "bit_length",
    "bit_count", "to_bytes", "from_bytes", "hex",         "is_integer", "as_integer_ratio"};

template <size_t N>
bool has(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value missing(const Value& base, const std::string& name) {
  return Value::undefined(fmt::format("a {} has no '{}'", type_name(base), name));
}

std::optional<Value> loop_attribute(Loop& loop, std::string_view name) {
  const auto or_undefined = [](const std::optional<Value>& value, const char* which) {
    return value.has_value() ? *value : Value::undefined(fmt::format("there is no {} item", which));
  };
  if (name == "index") return loop.index0 + 1;
  if (name == "index0") return loop.index0;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return !loop.peek().has_value();
  if (name == "length") return loop.length();
  if (name == "revindex") return loop.length() - loop.index0;
  if (name == "revindex0") return loop.length() - loop.index0 - 1;
  if (name == "depth") return static_cast<int64_t>(loop.depth0) + 1;
  if (name == "depth0") return static_cast<int64_t>(loop.depth0);
  if (name == "previtem") return or_undefined(loop.before, "previous");
  if (name == "nextitem") return or_undefined(loop.peek(), "next");
  return std::nullopt;
}

/// What Python's getattr would find on the object itself.
std::optional<Value> own_attribute(const Value& base, const std::string& name, Run& run) {
  if (const auto* space = base.mutable_object<Namespace>()) {
    run.step(static_cast<int64_t>(space->attributes.size()));
    for (const auto& [known, value] : space->attributes) {
      if (known == name) return value;
    }
    return std::nullopt;
  }
  if (auto* loop = base.mutable_object<Loop>()) {
    if (name == "changed") run.unsupported("'loop.changed'");
    if (auto value = loop_attribute(*loop, name)) return value;
  }
  if (has_method(base, name)) {
    return Value(std::make_shared<const Callable>(
        Callable{.kind = Callable::Kind::kMethod, .name = name, .self = base}));
  }
  if (base.is_number() && has(kNumberMethods, name)) {
    run.unsupported(fmt::format("'{}' of a number", name));
  }
  if (name.starts_with("__") && name.ends_with("__")) {
    return Value::undefined(fmt::format("access to '{}' is unsafe", name));
  }
  return std::nullopt;
}

const Value* element(const Sequence& sequence, int64_t place) {
  const auto size = static_cast<int64_t>(sequence.items.size());
  if (place < 0) place += size;
  return place < 0 || place >= size ? nullptr : &sequence.items[static_cast<size_t>(place)];
}

std::optional<Value> character(const std::string& text, int64_t place, Run& run) {
  run.spend(text.size() / 4);
  const std::vector<size_t> begins = character_begins(text);
  const auto size = static_cast<int64_t>(begins.size()) - 1;
  if (place < 0) place += size;
  if (place < 0 || place >= size) return std::nullopt;
  const auto at = static_cast<size_t>(place);
  return make_text(text.substr(begins[at], begins[at + 1] - begins[at]), run);
}

/// What Python's base[key] would find.
std::optional<Value> own_item(const Value& base, const Value& key, Run& run) {
  if (const auto* dict = base.object<Dict>()) {
    const Value* found = find(*dict, key, run);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (!key.is_integer()) return std::nullopt;
  if (base.is_text()) return character(base.text(), key.integer(), run);
  const auto* sequence = base.object<Sequence>();
  if (sequence == nullptr || !sequence->indexable()) return std::nullopt;
  const Value* found = element(*sequence, key.integer());
  return found == nullptr ? std::nullopt : std::optional<Value>(*found);
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  if (value.is_text()) return has(kTextMethods, name);
  if (value.object<Dict>()) return has(kDictMethods, name);
  if (const auto* sequence = value.object<Sequence>()) {
    if (!sequence->indexable()) return false;
    if (sequence->flavour == Flavour::kList) return has(kListMethods, name);
    return name == "count" || name == "index";
  }
  return value.mutable_object<Loop>() != nullptr && name == "cycle";
}

Value Interpreter::attribute(const Value& base, const std::string& name) {
  if (const auto* undefined = base.as<Undefined>()) run_.fail_text(*undefined->why);
  if (auto value = own_attribute(base, name, run_)) return std::move(*value);
  if (base.object<Dict>() != nullptr) {
    if (auto value = own_item(base, Value(name), run_)) return std::move(*value);
  }
  return missing(base, name);
}

Value Interpreter::item(const Value& base, const Value& key) {
  if (const auto* undefined = base.as<Undefined>()) run_.fail_text(*undefined->why);
  if (auto value = own_item(base, key, run_)) return std::move(*value);
  if (key.is_text()) {
    if (auto value = own_attribute(base, key.text(), run_)) return std::move(*value);
    return missing(base, key.text());
  }
  return Value::undefined(fmt::format(
      "a {} has no element {}", type_name(base),
      key.is_integer() ? std::to_string(key.integer()) : fmt::format("({})", type_name(key))));
}

}  // namespace dflash::text::jinja
