// Operators on values, with Python's rules and errors.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace dflash::text::jinja {

/// + - * / // % **
Value binary(std::string_view op, const Value& left, const Value& right, Run& run);
Value negated(const Value& value, Run& run);
Value unchanged(const Value& value, Run& run);  // unary plus: numbers only
/// == != < <= > >= in, not in
bool compare(std::string_view op, const Value& left, const Value& right, Run& run);
bool contains(const Value& container, const Value& value, Run& run);
/// value[start:stop:step]; absent bounds are None.
Value slice(const Value& value, const std::array<Value, 3>& bounds, Run& run);

/// Sets or replaces an entry.
void put(Value key, Value value, std::vector<std::pair<Value, Value>>& entries, Run& run);
void put(const std::string& key, Value value, std::vector<std::pair<std::string, Value>>& entries,
         Run& run);

}  // namespace dflash::text::jinja
