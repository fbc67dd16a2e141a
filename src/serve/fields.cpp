#include "serve/fields.h"

#include <algorithm>
#include <cmath>

#include "base/suggest.h"
#include "text/unicode.h"

namespace dflash::serve {
namespace {

/// What was got, for a message.
std::string shown(const OrderedJson& value) {
  std::string text = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  constexpr size_t kMost = 80;
  if (text.size() <= kMost) return text;
  text.resize(kMost);
  text.resize(text.size() - text::truncated_tail_bytes(text));
  return text + "...";
}

}  // namespace

Json ApiError::to_json() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"error",
           {{"message", what()},
            {"type", kind_.type},
            {"param", or_null(kind_.param)},
            {"code", or_null(kind_.code)}}}};
}

void refuse_field(const std::string& field, const std::string& expected, const OrderedJson& got) {
  throw ApiError({.param = field},
                 fmt::format("{}: expected {}, got {}", field, expected, shown(got)));
}

Fields::Fields(const OrderedJson& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) refuse_field(where_.empty() ? "body" : where_, "an object", object);
}

std::string Fields::path(std::string_view name) const {
  return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name);
}

const OrderedJson* Fields::find(const char* name) {
  known_.emplace_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::boolean(const char* name) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse_field(path(name), "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const char* name) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_field(path(name), "a text", *value);
  return value->get<std::string>();
}

std::optional<int64_t> Fields::integer(const char* name, int64_t least, int64_t most) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() &&
                      value->get<uint64_t>() > std::numeric_limits<int64_t>::max()) &&
                    value->get<int64_t>() >= least && value->get<int64_t>() <= most;
  if (fits) return value->get<int64_t>();
  if (most == std::numeric_limits<int64_t>::max()) {
    refuse_field(path(name), fmt::format("a whole number of at least {}", least), *value);
  }
  refuse_field(path(name), fmt::format("a whole number from {} to {}", least, most), *value);
}

std::optional<double> Fields::number(const char* name, double least, double most) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && value->get<double>() >= least && value->get<double>() <= most) {
    return value->get<double>();
  }
  refuse_field(path(name), fmt::format("a number from {} to {}", least, most), *value);
}

void Fields::expect_neutral(const char* name, std::initializer_list<OrderedJson> neutral) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return;
  if (std::find(neutral.begin(), neutral.end(), *value) != neutral.end()) return;
  std::string expected;
  for (const OrderedJson& one : neutral) expected += (expected.empty() ? "" : " or ") + one.dump();
  refuse_field(path(name), expected + " (nothing else is supported)", *value);
}

void Fields::ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) find(name);
}

void Fields::expect_all_read() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    throw ApiError({.code = "unknown_parameter", .param = path(key)},
                   fmt::format("{}: unknown field{}", path(key), did_you_mean(key, known_)));
  }
}

}  // namespace dflash::serve
