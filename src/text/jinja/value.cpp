#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/callable.h"
#include "text/jinja/loop.h"
#include "text/jinja/python_text.h"
#include "text/jinja/run.h"

namespace dflash::text::jinja {
namespace {

constexpr size_t kElementBytes = sizeof(Value) + 16;  // what a container's element is charged

int deepest(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return depth;
}

int checked_depth(int inner, Run& run) {
  if (inner + 1 > run.limits().value_depth) {
    run.fail("lists or mappings inside each other: expected at most {} levels",
             run.limits().value_depth);
  }
  return inner + 1;
}

const char* view_name(Flavour flavour) {
  switch (flavour) {
    case Flavour::kKeys:
      return "dict_keys";
    case Flavour::kValues:
      return "dict_values";
    default:
      return "dict_items";
  }
}

void append(std::string_view part, std::string& out, Run& run) {
  run.spend(part.size());
  out += part;
}

void append_repr(const Value& value, std::string& out, Run& run);

void append_items(const std::vector<Value>& items, std::string& out, Run& run) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) append(", ", out, run);
    append_repr(items[i], out, run);
  }
}

void append_sequence(const Sequence& sequence, std::string& out, Run& run) {
  if (sequence.flavour == Flavour::kRange) run.unsupported("printing a range");
  const bool tuple = sequence.flavour == Flavour::kTuple;
  if (!sequence.indexable()) append(view_name(sequence.flavour), out, run);
  if (!sequence.indexable()) append("(", out, run);
  append(tuple ? "(" : "[", out, run);
  append_items(sequence.items, out, run);
  if (tuple && sequence.items.size() == 1) append(",", out, run);
  append(tuple ? ")" : "]", out, run);
  if (!sequence.indexable()) append(")", out, run);
}

void append_dict(const Dict& dict, std::string& out, Run& run) {
  append("{", out, run);
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) append(", ", out, run);
    append_repr(dict.entries[i].first, out, run);
    append(": ", out, run);
    append_repr(dict.entries[i].second, out, run);
  }
  append("}", out, run);
}

void append_repr(const Value& value, std::string& out, Run& run) {
  run.step();
  if (const auto* sequence = value.object<Sequence>()) return append_sequence(*sequence, out, run);
  if (const auto* dict = value.object<Dict>()) return append_dict(*dict, out, run);
  if (value.is_undefined()) return append("Undefined", out, run);
  if (value.is_safe()) run.unsupported("printing a list that holds a string marked safe");
  append(value.is_text() ? quoted_text(value.text()) : to_text(value, run), out, run);
}

bool equal_items(const std::vector<Value>& left, const std::vector<Value>& right, Run& run) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!equal(left[i], right[i], run)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& left, const Dict& right, Run& run) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = find(right, key, run);
    if (other == nullptr || !equal(value, *other, run)) return false;
  }
  return true;
}

/// Numbers compare by value; a long double holds every int64 and every double.
long double exact(const Value& number) {
  return number.is_integer() ? static_cast<long double>(number.integer())
                             : static_cast<long double>(*number.as<double>());
}

}  // namespace

bool Value::same(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  return std::visit(
      [&](const auto& mine) {
        using T = std::decay_t<decltype(mine)>;
        const T& theirs = std::get<T>(other.data_);
        if constexpr (std::is_same_v<T, None>) {
          return true;
        } else if constexpr (std::is_same_v<T, Undefined>) {
          return mine.why == theirs.why;
        } else if constexpr (std::is_same_v<T, Text>) {
          return mine.bytes == theirs.bytes;
        } else {
          return mine == theirs;
        }
      },
      data_);
}

int depth_of(const Value& value) {
  if (const auto* sequence = value.object<Sequence>()) return sequence->depth;
  if (const auto* dict = value.object<Dict>()) return dict->depth;
  if (const auto* iterator = value.mutable_object<Iterator>()) return iterator->depth;
  if (const auto* loop = value.mutable_object<Loop>()) return loop->value_depth;
  if (const auto* callable = value.object<Callable>()) return depth_of(callable->self) + 1;
  return 0;
}

Value make_sequence(Flavour flavour, std::vector<Value> items, Run& run) {
  run.spend(64 + items.size() * kElementBytes);
  run.step(static_cast<int64_t>(items.size()));
  const int depth = checked_depth(deepest(items), run);
  return std::make_shared<const Sequence>(Sequence{flavour, std::move(items), depth});
}

Value make_list(std::vector<Value> items, Run& run) {
  return make_sequence(Flavour::kList, std::move(items), run);
}

Value make_tuple(std::vector<Value> items, Run& run) {
  return make_sequence(Flavour::kTuple, std::move(items), run);
}

Value make_iterator(std::vector<Value> items, Run& run) {
  run.spend(64 + items.size() * kElementBytes);
  run.step(static_cast<int64_t>(items.size()));
  const int depth = checked_depth(deepest(items), run);
  return std::make_shared<Iterator>(Iterator{std::move(items), 0, depth});
}

Value make_dict(std::vector<std::pair<Value, Value>> entries, Run& run) {
  run.spend(64 + entries.size() * 2 * kElementBytes);
  run.step(static_cast<int64_t>(entries.size()));
  int depth = 0;
  for (const auto& [key, value] : entries) {
    depth = std::max({depth, depth_of(key), depth_of(value)});
  }
  return std::make_shared<const Dict>(Dict{std::move(entries), checked_depth(depth, run)});
}

Value make_text(std::string text, Run& run) {
  run.spend(text.size() + 48);
  return Value(std::move(text));
}

Value from_json(const OrderedJson& json, Run& run) {
  const Nesting nesting(run);
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return json.get<bool>();
    case OrderedJson::value_t::string:
      return make_text(json.get_ref<const std::string&>(), run);
    case OrderedJson::value_t::number_integer:
      return json.get<int64_t>();
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) run.unsupported("an integer beyond 64 bits");
      return json.get<int64_t>();
    case OrderedJson::value_t::number_float:
      return json.get<double>();
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const OrderedJson& item : json) items.push_back(from_json(item, run));
      return make_list(std::move(items), run);
    }
    case OrderedJson::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, item] : json.items()) {
        entries.emplace_back(make_text(key, run), from_json(item, run));
      }
      return make_dict(std::move(entries), run);
    }
    default:
      return {};
  }
}

bool is_true(const Value& value) {
  if (value.is_none() || value.is_undefined()) return false;
  if (value.is_integer()) return value.integer() != 0;
  if (const auto* number = value.as<double>()) return *number != 0;
  if (value.is_text()) return !value.text().empty();
  if (const auto* sequence = value.object<Sequence>()) return !sequence->items.empty();
  if (const auto* dict = value.object<Dict>()) return !dict->entries.empty();
  return true;
}

bool equal(const Value& left, const Value& right, Run& run) {
  run.step();
  if (left.is_number() && right.is_number()) return exact(left) == exact(right);
  if (left.is_undefined() && right.is_undefined()) return true;
  if (left.is_text() && right.is_text()) {
    if (left.text().size() != right.text().size()) return false;
    run.spend(left.text().size() / 16);
    return left.text() == right.text();
  }
  const auto *mine = left.object<Sequence>(), *theirs = right.object<Sequence>();
  if (mine != nullptr && theirs != nullptr && mine->flavour == theirs->flavour) {
    return mine == theirs || equal_items(mine->items, theirs->items, run);
  }
  const auto *one = left.object<Dict>(), *other = right.object<Dict>();
  if (one != nullptr && other != nullptr) return one == other || equal_dicts(*one, *other, run);
  return left.same(right);
}

bool less(const Value& left, const Value& right, Run& run) {
  run.step();
  if (left.is_number() && right.is_number()) return exact(left) < exact(right);
  if (left.is_text() && right.is_text()) {
    run.spend(std::min(left.text().size(), right.text().size()) / 16);
    return left.text() < right.text();
  }
  const auto *mine = left.object<Sequence>(), *theirs = right.object<Sequence>();
  if (mine != nullptr && theirs != nullptr && mine->flavour == theirs->flavour &&
      mine->flavour <= Flavour::kTuple) {
    const size_t common = std::min(mine->items.size(), theirs->items.size());
    for (size_t i = 0; i < common; ++i) {
      if (!equal(mine->items[i], theirs->items[i], run)) {
        return less(mine->items[i], theirs->items[i], run);
      }
    }
    return mine->items.size() < theirs->items.size();
  }
  run.fail("'<' between {} and {}: expected values that have an order", type_name(left),
           type_name(right));
}

const Value* find(const Dict& dict, const Value& key, Run& run) {
  const auto* tuple = key.object<Sequence>();
  const bool hashable = !key.object<Dict>() && (!tuple || tuple->flavour == Flavour::kTuple);
  if (!hashable)
    run.fail("a {} as the key of a mapping: expected a value with a hash", type_name(key));
  if (key.is_text()) return find(dict, std::string_view(key.text()), run);
  for (const auto& [other, value] : dict.entries) {
    if (equal(other, key, run)) return &value;
  }
  return nullptr;
}

const Value* find(const Dict& dict, std::string_view key, Run& run) {
  run.spend(dict.entries.size());
  for (const auto& [other, value] : dict.entries) {
    if (other.is_text() && other.text() == key) return &value;
  }
  return nullptr;
}

std::string to_text(const Value& value, Run& run) {
  if (value.is_text()) {
    run.spend(value.text().size());
    return value.text();
  }
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "";
  if (const auto* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (const auto* number = value.as<int64_t>()) return std::to_string(*number);
  if (const auto* number = value.as<double>()) return float_text(*number);
  if (value.object<Sequence>() != nullptr || value.object<Dict>() != nullptr) {
    return repr(value, run);
  }
  run.unsupported(fmt::format("printing a {}", type_name(value)));
}

std::string repr(const Value& value, Run& run) {
  std::string out;
  append_repr(value, out, run);
  return out;
}

std::string type_name(const Value& value) {
  if (value.is_none()) return "NoneType";
  if (value.is_undefined()) return "Undefined";
  if (value.as<bool>()) return "bool";
  if (value.as<int64_t>()) return "int";
  if (value.as<double>()) return "float";
  if (value.is_text()) return "str";
  if (value.object<Dict>()) return "dict";
  if (value.mutable_object<Iterator>()) return "generator";
  if (value.mutable_object<Namespace>()) return "Namespace";
  if (value.mutable_object<Loop>()) return "LoopContext";
  if (const auto* sequence = value.object<Sequence>()) {
    if (!sequence->indexable()) return view_name(sequence->flavour);
    if (sequence->flavour == Flavour::kRange) return "range";
    return sequence->flavour == Flavour::kTuple ? "tuple" : "list";
  }
  return "function";
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.object<Sequence>() ||
         value.object<Dict>() || value.mutable_object<Iterator>() || value.mutable_object<Loop>();
}

std::vector<Value> iterate(const Value& value, Run& run) {
  std::vector<Value> out;
  if (value.is_undefined()) return out;
  if (const auto* sequence = value.object<Sequence>()) {
    out = sequence->items;
  } else if (const auto* dict = value.object<Dict>()) {
    for (const auto& [key, item] : dict->entries) out.push_back(key);
  } else if (value.is_text()) {
    const std::string& text = value.text();
    for (size_t at = 0; at < text.size();) {
      const std::string_view one = character_at(text, at);
      run.step();
      out.push_back(make_text(std::string(one), run));
      at += one.size();
    }
  } else if (auto* iterator = value.mutable_object<Iterator>()) {
    out.assign(iterator->items.begin() + static_cast<ptrdiff_t>(iterator->next),
               iterator->items.end());
    iterator->next = iterator->items.size();
  } else {
    run.fail("a {} is not iterable", type_name(value));
  }
  run.spend(out.size() * sizeof(Value));
  run.step(static_cast<int64_t>(out.size()));
  return out;
}

int64_t length(const Value& value, Run& run) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) {
    run.spend(value.text().size() / 4);
    return count_characters(value.text());
  }
  if (const auto* sequence = value.object<Sequence>()) {
    return static_cast<int64_t>(sequence->items.size());
  }
  if (const auto* dict = value.object<Dict>()) return static_cast<int64_t>(dict->entries.size());
  run.fail("a {} has no length", type_name(value));
}

}  // namespace dflash::text::jinja
