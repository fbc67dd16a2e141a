// The values that a template works with: Python's, as far as chat templates see them. Values are
// immutable but for namespaces and one-shot iterators; how deep they nest is bounded, so that
// walking and freeing them never exhausts the stack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace dflash::text::jinja {

class Run;
struct Callable;
struct Dict;
struct Iterator;
struct Loop;
struct Namespace;
struct Sequence;

/// A name that stands for nothing. `why` is what an error about it says.
struct Undefined {
  std::shared_ptr<const std::string> why;
};

struct None {};

/// A str. `safe`: it went through `|safe`, so `+` escapes what is joined to it.
struct Text {
  std::shared_ptr<const std::string> bytes;
  bool safe = false;
};

class Value {
 public:
  using Data = std::variant<None, Undefined, bool, int64_t, double, Text,
                            std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                            std::shared_ptr<Iterator>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Callable>, std::shared_ptr<Loop>>;

  Value() = default;
  template <typename T>
  requires std::is_constructible_v<Data, T>
  explicit(false) Value(T value) : data_(std::move(value)) {}
  explicit(false) Value(std::string text)
      : data_(Text{std::make_shared<const std::string>(std::move(text))}) {}
  explicit(false) Value(const char* text) : Value(std::string(text)) {}

  static Value undefined(std::string why) {
    return Undefined{std::make_shared<const std::string>(std::move(why))};
  }

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  template <typename T>
  const T* object() const {
    const auto* held = std::get_if<std::shared_ptr<const T>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  template <typename T>
  T* mutable_object() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_text() const { return std::holds_alternative<Text>(data_); }
  bool is_number() const { return as<bool>() || as<int64_t>() || as<double>(); }
  /// The bytes of a str; the caller has asked is_text.
  const std::string& text() const { return *std::get<Text>(data_).bytes; }
  bool is_safe() const { return is_text() && std::get<Text>(data_).safe; }
  /// bool and int as int.
  bool is_integer() const { return as<bool>() || as<int64_t>(); }
  int64_t integer() const {
    return as<bool>() != nullptr ? int64_t{*as<bool>()} : std::get<int64_t>(data_);
  }
  /// Any number as float.
  double number() const { return as<double>() ? *as<double>() : static_cast<double>(integer()); }

  /// The same object, as Python's `is` on the kinds for which that is defined.
  bool same(const Value& other) const;
  const Data& data() const { return data_; }

 private:
  Data data_;
};

enum class Flavour : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems };

/// list, tuple, range and the views of a dict.
struct Sequence {
  Flavour flavour = Flavour::kList;
  std::vector<Value> items;
  int depth = 1;
  bool indexable() const { return flavour <= Flavour::kRange; }
};

/// In order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
};

/// A generator: what it held is gone once it was walked.
struct Iterator {
  std::vector<Value> items;
  size_t next = 0;
  int depth = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

/// Levels of nesting below and including the value; 0 for plain ones.
int depth_of(const Value& value);
/// Errors: nesting beyond the bound; memory beyond the bound.
Value make_sequence(Flavour flavour, std::vector<Value> items, Run& run);
Value make_list(std::vector<Value> items, Run& run);
Value make_tuple(std::vector<Value> items, Run& run);
Value make_iterator(std::vector<Value> items, Run& run);
Value make_dict(std::vector<std::pair<Value, Value>> entries, Run& run);
Value make_text(std::string text, Run& run);
Value from_json(const OrderedJson& json, Run& run);

bool is_true(const Value& value);
/// Python's ==, and < for what has an order; Error otherwise.
bool equal(const Value& left, const Value& right, Run& run);
bool less(const Value& left, const Value& right, Run& run);
/// nullptr: no such key. Error: the key has no hash.
const Value* find(const Dict& dict, const Value& key, Run& run);
const Value* find(const Dict& dict, std::string_view key, Run& run);

/// str(value) and repr(value). Error: what Python prints with an address.
std::string to_text(const Value& value, Run& run);
std::string repr(const Value& value, Run& run);
/// "'NoneType' object" names, for messages.
std::string type_name(const Value& value);

/// What a loop over the value walks; a generator is used up. Error: not iterable.
std::vector<Value> iterate(const Value& value, Run& run);
bool is_iterable(const Value& value);
/// len(value); Error: it has none.
int64_t length(const Value& value, Run& run);

}  // namespace dflash::text::jinja
