#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/library.h"
#include "text/jinja/python_text.h"
#include "text/jinja/run.h"

namespace dflash::text::jinja {
namespace {

[[noreturn]] void bad_operands(std::string_view op, const Value& left, const Value& right,
                               Run& run) {
  for (const Value* value : {&left, &right}) {
    if (const auto* undefined = value->as<Undefined>()) run.fail_text(*undefined->why);
  }
  run.fail("'{}' between {} and {}", op, type_name(left), type_name(right));
}

[[noreturn]] void too_large(std::string_view op, Run& run) {
  run.unsupported(fmt::format("'{}' with a result beyond 64 bits", op));
}

Value joined_text(const Value& left, const Value& right, Run& run) {
  run.spend(left.text().size() + right.text().size() + 48);
  if (!left.is_safe() && !right.is_safe()) return Value(left.text() + right.text());
  // What is not marked safe is escaped when it meets what is.
  std::string text = left.is_safe() ? left.text() : html_escaped(left.text());
  text += right.is_safe() ? right.text() : html_escaped(right.text());
  return Text{std::make_shared<const std::string>(std::move(text)), true};
}

Value add(const Value& left, const Value& right, Run& run) {
  if (left.is_text() && right.is_text()) return joined_text(left, right, run);
  const auto *one = left.object<Sequence>(), *other = right.object<Sequence>();
  if (one == nullptr || other == nullptr || one->flavour != other->flavour ||
      one->flavour > Flavour::kTuple) {
    bad_operands("+", left, right, run);
  }
  std::vector<Value> items = one->items;
  items.insert(items.end(), other->items.begin(), other->items.end());
  return make_sequence(one->flavour, std::move(items), run);
}

/// str or list times int.
Value repeated(const Value& what, const Value& count, Run& run) {
  const auto times = static_cast<size_t>(std::max<int64_t>(0, count.integer()));
  const auto* sequence = what.object<Sequence>();
  const size_t size = what.is_text() ? what.text().size() : sequence->items.size() * sizeof(Value);
  if (size != 0 && times > SIZE_MAX / 2 / size) run.spend(SIZE_MAX / 2);
  run.spend(size * times);
  if (size == 0) return what;
  if (what.is_text()) {
    std::string text;
    text.reserve(size * times);
    for (size_t i = 0; i < times; ++i) text += what.text();
    return Value(std::move(text));
  }
  std::vector<Value> items;
  for (size_t i = 0; i < times; ++i) {
    items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  }
  return make_sequence(sequence->flavour, std::move(items), run);
}

bool is_repeatable(const Value& value) {
  const auto* sequence = value.object<Sequence>();
  return (value.is_text() && !value.is_safe()) ||
         (sequence != nullptr && sequence->flavour <= Flavour::kTuple);
}

int64_t floor_divided(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return quotient - ((left % right != 0 && (left < 0) != (right < 0)) ? 1 : 0);
}

double float_modulo(double left, double right) {
  const double rest = std::fmod(left, right);
  if (rest == 0) return std::copysign(0.0, right);
  return (rest < 0) != (right < 0) ? rest + right : rest;
}

Value power(int64_t base, int64_t exponent, Run& run) {
  if (exponent < 0) {
    if (base == 0) run.fail("'**': division by zero");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? int64_t{1} : base;
  if (base == -1) return exponent % 2 == 0 ? int64_t{1} : int64_t{-1};
  int64_t value = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(value, base, &value)) too_large("**", run);
  }
  return value;
}

Value integer_result(std::string_view op, int64_t left, int64_t right, Run& run) {
  int64_t value = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(left, right, &value);
  if (op == "-") overflow = __builtin_sub_overflow(left, right, &value);
  if (op == "*") overflow = __builtin_mul_overflow(left, right, &value);
  if (overflow) too_large(op, run);
  if (op == "+" || op == "-" || op == "*") return value;
  if (op == "**") return power(left, right, run);
  if (right == 0) run.fail("'{}': division by zero", op);
  if (op == "/") return static_cast<double>(left) / static_cast<double>(right);
  if (right == -1) {
    if (op == "%") return int64_t{0};
    if (left == INT64_MIN) too_large(op, run);
  }
  if (op == "//") return floor_divided(left, right);
  return left - floor_divided(left, right) * right;
}

Value float_result(std::string_view op, double left, double right, Run& run) {
  if (op == "+") return left + right;
  if (op == "-") return left - right;
  if (op == "*") return left * right;
  if (op == "**") {
    const double value = std::pow(left, right);
    if (!std::isfinite(value)) run.fail("'**': out of range");
    return value;
  }
  if (right == 0) run.fail("'{}': division by zero", op);
  if (op == "/") return left / right;
  const double rest = float_modulo(left, right);
  if (op == "%") return rest;
  return std::floor((left - rest) / right + 0.5);
}

/// First and last element, exclusive, of a slice as Python adjusts them.
int64_t adjusted(const Value& bound, int64_t length, int64_t fallback, bool backward, Run& run) {
  if (bound.is_none()) return fallback;
  if (!bound.is_integer()) run.fail("slice: expected integers, got {}", type_name(bound));
  const int64_t low = backward ? -1 : 0, high = backward ? length - 1 : length;
  int64_t place = bound.integer();
  if (place < 0) place = place < -length ? low : place + length;
  return std::clamp(place, low, std::max(low, high));
}

template <typename Take>
void walk_slice(int64_t length, const std::array<Value, 3>& bounds, Run& run, const Take& take) {
  int64_t step = 1;
  if (!bounds[2].is_none()) {
    if (!bounds[2].is_integer()) run.fail("slice: expected integers");
    step = bounds[2].integer();
  }
  if (step == 0) run.fail("slice: step of zero");
  const bool backward = step < 0;
  step = std::clamp(step, -length - 1, length + 1);
  int64_t at = adjusted(bounds[0], length, backward ? length - 1 : 0, backward, run);
  const int64_t stop = adjusted(bounds[1], length, backward ? -1 : length, backward, run);
  for (; backward ? at > stop : at < stop; at += step) {
    run.step();
    take(static_cast<size_t>(at));
  }
}

}  // namespace

Value binary(std::string_view op, const Value& left, const Value& right, Run& run) {
  if (op == "%" && left.is_text()) return make_text(percent_format(left.text(), right, run), run);
  if (left.is_integer() && right.is_integer()) {
    return integer_result(op, left.integer(), right.integer(), run);
  }
  if (left.is_number() && right.is_number()) {
    return float_result(op, left.number(), right.number(), run);
  }
  if (op == "+") return add(left, right, run);
  if (op == "*" && is_repeatable(left) && right.is_integer()) return repeated(left, right, run);
  if (op == "*" && is_repeatable(right) && left.is_integer()) return repeated(right, left, run);
  bad_operands(op, left, right, run);
}

Value negated(const Value& value, Run& run) {
  if (const auto* number = value.as<double>()) return -*number;
  return binary("-", int64_t{0}, value, run);
}

Value unchanged(const Value& value, Run& run) {
  if (value.as<double>() != nullptr) return value;
  return binary("+", int64_t{0}, value, run);
}

bool contains(const Value& container, const Value& value, Run& run) {
  if (container.is_text()) {
    if (!value.is_text()) run.fail("'in' a str: expected a str, got {}", type_name(value));
    run.spend(container.text().size() / 8);
    return container.text().find(value.text()) != std::string::npos;
  }
  if (const auto* dict = container.object<Dict>()) return find(*dict, value, run) != nullptr;
  if (const auto* sequence = container.object<Sequence>()) {
    return std::any_of(sequence->items.begin(), sequence->items.end(),
                       [&](const Value& item) { return equal(item, value, run); });
  }
  if (!is_iterable(container)) run.fail("'in' a {}", type_name(container));
  for (const Value& item : iterate(container, run)) {
    if (equal(item, value, run)) return true;
  }
  return false;
}

bool compare(std::string_view op, const Value& left, const Value& right, Run& run) {
  if (op == "==") return equal(left, right, run);
  if (op == "!=") return !equal(left, right, run);
  if (op == "in") return contains(right, left, run);
  if (op == "not in") return !contains(right, left, run);
  for (const Value* value : {&left, &right}) {
    if (const auto* undefined = value->as<Undefined>()) run.fail_text(*undefined->why);
  }
  const auto is_nan = [](const Value& value) {
    return value.as<double>() != nullptr && std::isnan(*value.as<double>());
  };
  if (is_nan(left) || is_nan(right)) return false;
  if (op == "<") return less(left, right, run);
  if (op == ">") return less(right, left, run);
  return op == "<=" ? !less(right, left, run) : !less(left, right, run);
}

Value slice(const Value& value, const std::array<Value, 3>& bounds, Run& run) {
  if (value.is_text()) {
    const std::string& text = value.text();
    run.spend(text.size());
    const std::vector<size_t> begins = character_begins(text);
    std::string out;
    walk_slice(static_cast<int64_t>(begins.size()) - 1, bounds, run,
               [&](size_t i) { out.append(text, begins[i], begins[i + 1] - begins[i]); });
    return make_text(std::move(out), run);
  }
  const auto* sequence = value.object<Sequence>();
  if (sequence == nullptr || !sequence->indexable()) {
    if (const auto* undefined = value.as<Undefined>()) run.fail_text(*undefined->why);
    return Value::undefined(fmt::format("a {} has no slices", type_name(value)));
  }
  std::vector<Value> items;
  walk_slice(static_cast<int64_t>(sequence->items.size()), bounds, run,
             [&](size_t i) { items.push_back(sequence->items[i]); });
  return make_sequence(sequence->flavour, std::move(items), run);
}

void put(Value key, Value value, std::vector<std::pair<Value, Value>>& entries, Run& run) {
  const auto* tuple = key.object<Sequence>();
  if (key.object<Dict>() || (tuple != nullptr && tuple->flavour != Flavour::kTuple)) {
    run.fail("a {} as the key of a mapping: expected a value with a hash", type_name(key));
  }
  for (auto& [known, held] : entries) {
    if (!equal(known, key, run)) continue;
    held = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
}

void put(const std::string& key, Value value, std::vector<std::pair<std::string, Value>>& entries,
         Run& run) {
  run.step(static_cast<int64_t>(entries.size()));
  for (auto& [known, held] : entries) {
    if (known != key) continue;
    held = std::move(value);
    return;
  }
  run.spend(key.size() + 64);
  entries.emplace_back(key, std::move(value));
}

}  // namespace dflash::text::jinja
