// The tests of `is`.
#include <map>

#include "text/jinja/library.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace dflash::text::jinja {
namespace {

void no_arguments(const char* name, const Arguments& arguments, Run& run) {
  if (!arguments.positional.empty() || !arguments.named.empty()) {
    run.fail("test '{}': expected no arguments", name);
  }
}

const Value& only_argument(const char* name, const Arguments& arguments, Run& run) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    run.fail("test '{}': expected one argument", name);
  }
  return arguments.positional[0];
}

bool is_sequence(const Value& value) {
  const auto* sequence = value.object<Sequence>();
  return (sequence != nullptr && sequence->indexable()) || value.is_text() ||
         value.object<Dict>() != nullptr || value.is_undefined();
}

/// value % divisor == rest, as the tests on numbers do it.
bool leaves(const Value& value, int64_t divisor, int64_t rest, Run& run) {
  return equal(binary("%", value, divisor, run), rest, run);
}

bool is_sameas(const Value& value, const Value& other, Run& run) {
  if (value.is_none() || value.as<bool>() || other.is_none() || other.as<bool>()) {
    return value.same(other);
  }
  if (value.is_number() || value.is_text()) run.unsupported("test 'sameas' of numbers or strings");
  return value.same(other);
}

template <bool (*holds)(const Value&)>
bool plain(Interpreter& at, const Value& value, const Arguments& arguments) {
  no_arguments("is", arguments, at.run());
  return holds(value);
}

bool is_defined(const Value& v) {
  return !v.is_undefined();
}
bool is_undefined(const Value& v) {
  return v.is_undefined();
}
bool is_none(const Value& v) {
  return v.is_none();
}
bool is_boolean(const Value& v) {
  return v.as<bool>() != nullptr;
}
bool is_false(const Value& v) {
  return v.as<bool>() != nullptr && !*v.as<bool>();
}
bool is_true_value(const Value& v) {
  return v.as<bool>() != nullptr && *v.as<bool>();
}
bool is_int(const Value& v) {
  return v.as<int64_t>() != nullptr;
}
bool is_float(const Value& v) {
  return v.as<double>() != nullptr;
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_string(const Value& v) {
  return v.is_text();
}
bool is_mapping(const Value& v) {
  return v.object<Dict>() != nullptr;
}
// Undefined has a __call__, which raises.
bool is_callable(const Value& v) {
  return v.object<Callable>() || v.is_undefined();
}
bool is_escaped(const Value& v) {
  return v.is_safe();
}

template <bool (*holds)(std::string_view)>
bool of_case(Interpreter& at, const Value& value, const Arguments& arguments) {
  no_arguments("lower or upper", arguments, at.run());
  return holds(to_text(value, at.run()));
}

bool test_odd(Interpreter& at, const Value& value, const Arguments& arguments) {
  no_arguments("odd", arguments, at.run());
  return leaves(value, 2, 1, at.run());
}

bool test_even(Interpreter& at, const Value& value, const Arguments& arguments) {
  no_arguments("even", arguments, at.run());
  return leaves(value, 2, 0, at.run());
}

bool test_divisible(Interpreter& at, const Value& value, const Arguments& arguments) {
  const Value& divisor = only_argument("divisibleby", arguments, at.run());
  return equal(binary("%", value, divisor, at.run()), int64_t{0}, at.run());
}

bool test_in(Interpreter& at, const Value& value, const Arguments& arguments) {
  return contains(only_argument("in", arguments, at.run()), value, at.run());
}

bool test_sameas(Interpreter& at, const Value& value, const Arguments& arguments) {
  return is_sameas(value, only_argument("sameas", arguments, at.run()), at.run());
}

bool test_filter(Interpreter& at, const Value& value, const Arguments& arguments) {
  no_arguments("filter", arguments, at.run());
  return find_filter(to_text(value, at.run())) != nullptr;
}

enum class Order : uint8_t { kEqual, kUnequal, kLess, kLessEqual, kGreater, kGreaterEqual };

template <Order order>
bool test_order(Interpreter& at, const Value& value, const Arguments& arguments) {
  static constexpr std::array<std::string_view, 6> operators = {"==", "!=", "<", "<=", ">", ">="};
  const Value& other = only_argument("comparison", arguments, at.run());
  return compare(operators[static_cast<size_t>(order)], value, other, at.run());
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::map<std::string_view, Test> table = {
      {"boolean", plain<is_boolean>},
      {"callable", plain<is_callable>},
      {"defined", plain<is_defined>},
      {"divisibleby", test_divisible},
      {"escaped", plain<is_escaped>},
      {"even", test_even},
      {"false", plain<is_false>},
      {"filter", test_filter},
      {"float", plain<is_float>},
      {"in", test_in},
      {"integer", plain<is_int>},
      {"iterable", plain<is_iterable>},
      {"lower", of_case<is_lower>},
      {"mapping", plain<is_mapping>},
      {"none", plain<is_none>},
      {"number", plain<is_number>},
      {"odd", test_odd},
      {"sameas", test_sameas},
      {"sequence", plain<is_sequence>},
      {"string", plain<is_string>},
      {"true", plain<is_true_value>},
      {"undefined", plain<is_undefined>},
      {"upper", of_case<is_upper>},
      {"==", test_order<Order::kEqual>},
      {"eq", test_order<Order::kEqual>},
      {"equalto", test_order<Order::kEqual>},
      {"!=", test_order<Order::kUnequal>},
      {"ne", test_order<Order::kUnequal>},
      {"<", test_order<Order::kLess>},
      {"lt", test_order<Order::kLess>},
      {"lessthan", test_order<Order::kLess>},
      {"<=", test_order<Order::kLessEqual>},
      {"le", test_order<Order::kLessEqual>},
      {">", test_order<Order::kGreater>},
      {"gt", test_order<Order::kGreater>},
      {"greaterthan", test_order<Order::kGreater>},
      {">=", test_order<Order::kGreaterEqual>},
      {"ge", test_order<Order::kGreaterEqual>},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace dflash::text::jinja
