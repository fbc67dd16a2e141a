// Filters on sequences and mappings. Those that are generators in jinja2 give one-shot iterators.
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include "text/jinja/library.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace dflash::text::jinja {
namespace {

using Key = std::function<Value(const Value&)>;

bool flag(const std::optional<Value>& value) {
  return value.has_value() && is_true(*value);
}

bool given_attribute(const std::optional<Value>& value) {
  return value.has_value() && !value->is_none();
}

Value without_case(const Value& value, Run& run) {
  if (!value.is_text()) return value;
  run.spend(value.text().size() * 8);
  return make_text(to_lower(value.text()), run);
}

/// "a.b.0" -> its parts; numbers as integers.
std::vector<Value> attribute_parts(const Value& attribute, Run& run) {
  if (attribute.is_integer()) return {attribute};
  if (!attribute.is_text()) run.fail("attribute: expected a str or an int");
  std::vector<Value> parts;
  for (const std::string& part : split(attribute.text(), ".", -1)) {
    const bool digits = !part.empty() && part.size() < 19 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    const auto number = digits ? parse_integer(part, 10) : std::nullopt;
    parts.push_back(number.has_value() ? Value(*number) : Value(part));
  }
  return parts;
}

/// The getter of jinja2's `attribute` arguments.
Key getter(Interpreter& at, const std::optional<Value>& attribute,
           const std::optional<Value>& fallback = std::nullopt) {
  if (!given_attribute(attribute)) return [](const Value& value) { return value; };
  return [&at, parts = attribute_parts(*attribute, at.run()), fallback](const Value& value) {
    Value found = value;
    for (const Value& part : parts) {
      found = at.item(found, part);
      if (found.is_undefined() && given_attribute(fallback)) found = *fallback;
    }
    return found;
  };
}

Value filter_list(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("list", arguments, {}, 0, at.run());
  return make_list(iterate(value, at.run()), at.run());
}

Value filter_items(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("items", arguments, {}, 0, at.run());
  std::vector<Value> items;
  if (const auto* dict = value.object<Dict>()) {
    for (const auto& [key, held] : dict->entries) {
      items.push_back(make_tuple({key, held}, at.run()));
    }
  } else if (!value.is_undefined()) {
    at.run().fail("items: expected a mapping, got {}", type_name(value));
  }
  return make_iterator(std::move(items), at.run());
}

Value filter_join(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("join", arguments, {"d", "attribute"}, 0, run);
  const std::string between = given[0].has_value() ? to_text(*given[0], run) : "";
  const Key get = getter(at, given[1]);
  std::string out;
  bool first = true;
  for (const Value& item : iterate(value, run)) {
    run.spend(between.size());
    if (!first) out += between;
    first = false;
    out += to_text(get(item), run);
  }
  return make_text(std::move(out), run);
}

Value filter_first(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("first", arguments, {}, 0, at.run());
  if (auto* iterator = value.mutable_object<Iterator>()) {
    if (iterator->next < iterator->items.size()) return iterator->items[iterator->next++];
    return Value::undefined("'first' of an empty sequence");
  }
  const std::vector<Value> items = iterate(value, at.run());
  return items.empty() ? Value::undefined("'first' of an empty sequence") : items.front();
}

Value filter_last(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("last", arguments, {}, 0, at.run());
  if (value.mutable_object<Iterator>()) at.run().fail("last: a generator has no end to look at");
  const std::vector<Value> items = iterate(value, at.run());
  return items.empty() ? Value::undefined("'last' of an empty sequence") : items.back();
}

Value filter_reverse(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("reverse", arguments, {}, 0, at.run());
  std::vector<Value> items = iterate(value, at.run());
  std::reverse(items.begin(), items.end());
  if (value.is_text()) {
    std::string out;
    for (const Value& item : items) out += item.text();
    return make_text(std::move(out), at.run());
  }
  if (value.mutable_object<Iterator>()) return make_list(std::move(items), at.run());
  return make_iterator(std::move(items), at.run());
}

/// Sorts by the keys of `get`, equal ones in their order.
std::vector<Value> sorted(std::vector<Value> items, const Key& get, bool reverse, Run& run) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) {
    Value key = get(item);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& left, const auto& right) {
    return reverse ? less(right.first, left.first, run) : less(left.first, right.first, run);
  });
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return out;
}

Value filter_sort(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given =
      bind_arguments("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0, run);
  const bool keep_case = flag(given[1]);
  std::vector<Key> getters;
  if (given_attribute(given[2]) && given[2]->is_text()) {
    for (const std::string& name : split(given[2]->text(), ",", -1)) {
      getters.push_back(getter(at, Value(name)));
    }
  } else {
    getters.push_back(getter(at, given[2]));
  }
  const Key key = [&](const Value& item) {
    std::vector<Value> parts;
    for (const Key& get : getters) {
      parts.push_back(keep_case ? get(item) : without_case(get(item), run));
    }
    return parts.size() == 1 ? parts[0] : make_list(std::move(parts), run);
  };
  return make_list(sorted(iterate(value, run), key, flag(given[0]), run), run);
}

Value filter_dictsort(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given =
      bind_arguments("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0, run);
  const std::string by = given[1].has_value() ? to_text(*given[1], run) : "key";
  if (by != "key" && by != "value") run.fail("dictsort: by '{}': expected key or value", by);
  const auto* dict = value.object<Dict>();
  if (dict == nullptr) run.fail("dictsort: expected a mapping, got {}", type_name(value));
  std::vector<Value> pairs;
  for (const auto& [key, held] : dict->entries) pairs.push_back(make_tuple({key, held}, run));
  const bool keep_case = flag(given[0]);
  const Key key = [&](const Value& pair) {
    const Value& part = pair.object<Sequence>()->items[by == "key" ? 0 : 1];
    return keep_case ? part : without_case(part, run);
  };
  return make_list(sorted(std::move(pairs), key, flag(given[2]), run), run);
}

Value filter_unique(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("unique", arguments, {"case_sensitive", "attribute"}, 0, run);
  const Key get = getter(at, given[1]);
  std::vector<std::pair<Value, Value>> seen;
  std::vector<Value> out;
  for (Value& item : iterate(value, run)) {
    const Value key = flag(given[0]) ? get(item) : without_case(get(item), run);
    const size_t before = seen.size();
    put(key, Value(), seen, run);
    if (seen.size() > before) out.push_back(std::move(item));
  }
  return make_iterator(std::move(out), run);
}

Value extreme(Interpreter& at, const Value& value, const Arguments& arguments, bool largest) {
  Run& run = at.run();
  const auto given =
      bind_arguments(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"}, 0, run);
  const Key get = getter(at, given[1]);
  const std::vector<Value> items = iterate(value, run);
  if (items.empty()) return Value::undefined("'min' or 'max' of an empty sequence");
  const auto key = [&](const Value& item) {
    return flag(given[0]) ? get(item) : without_case(get(item), run);
  };
  size_t best = 0;
  Value best_key = key(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value other = key(items[i]);
    if (!(largest ? less(best_key, other, run) : less(other, best_key, run))) continue;
    best = i;
    best_key = std::move(other);
  }
  return items[best];
}

Value filter_min(Interpreter& at, const Value& value, const Arguments& arguments) {
  return extreme(at, value, arguments, false);
}

Value filter_max(Interpreter& at, const Value& value, const Arguments& arguments) {
  return extreme(at, value, arguments, true);
}

Value filter_sum(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("sum", arguments, {"attribute", "start"}, 0, run);
  const Key get = getter(at, given[0]);
  Value total = given[1].value_or(int64_t{0});
  if (total.is_text()) run.fail("sum: expected numbers, got a str");
  for (const Value& item : iterate(value, run)) total = binary("+", total, get(item), run);
  return total;
}

/// The rest of the arguments after the first `count`.
Arguments rest_of(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<ptrdiff_t>(count));
  return rest;
}

Value filter_map(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  std::vector<Value> out;
  if (!is_true(value)) return make_iterator({}, run);
  if (arguments.positional.empty()) {
    const auto given = bind_arguments("map", arguments, {"attribute", "default"}, 1, run);
    const Key get = getter(at, given[0], given[1]);
    for (const Value& item : iterate(value, run)) out.push_back(get(item));
    return make_iterator(std::move(out), run);
  }
  const std::string name = to_text(arguments.positional[0], run);
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : iterate(value, run)) out.push_back(at.filter(name, item, rest));
  return make_iterator(std::move(out), run);
}

/// select and its kin: keeps the items for which the test's outcome equals `wanted`.
Value chosen(Interpreter& at, const Value& value, const Arguments& arguments, bool wanted,
             bool by_attribute) {
  Run& run = at.run();
  if (!is_true(value)) return make_iterator({}, run);
  const size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) run.fail("selectattr: the attribute is missing");
  const Key get =
      getter(at, by_attribute ? std::optional<Value>(arguments.positional[0]) : std::nullopt);
  const bool tested = arguments.positional.size() > first;
  const std::string name = tested ? to_text(arguments.positional[first], run) : "";
  const Arguments rest = tested ? rest_of(arguments, first + 1) : Arguments();
  std::vector<Value> out;
  for (Value& item : iterate(value, run)) {
    const Value subject = get(item);
    const bool outcome = tested ? at.test(name, subject, rest) : is_true(subject);
    if (outcome == wanted) out.push_back(std::move(item));
  }
  return make_iterator(std::move(out), run);
}

template <bool wanted, bool by_attribute>
Value filter_choose(Interpreter& at, const Value& value, const Arguments& arguments) {
  return chosen(at, value, arguments, wanted, by_attribute);
}

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  static const std::map<std::string_view, Filter> table = {
      {"dictsort", filter_dictsort},
      {"first", filter_first},
      {"items", filter_items},
      {"join", filter_join},
      {"last", filter_last},
      {"list", filter_list},
      {"map", filter_map},
      {"max", filter_max},
      {"min", filter_min},
      {"reject", filter_choose<false, false>},
      {"rejectattr", filter_choose<false, true>},
      {"reverse", filter_reverse},
      {"select", filter_choose<true, false>},
      {"selectattr", filter_choose<true, true>},
      {"sort", filter_sort},
      {"sum", filter_sum},
      {"unique", filter_unique},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace dflash::text::jinja
