// Look-up of tensors and metadata values, with errors that name the key and what was found.
#include "io/gguf.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/suggest.h"
#include "io/checked.h"
#include "io/gguf_types.h"

namespace dflash::io {
namespace {

std::string describe(const std::vector<GgufScalar>& values, bool is_array) {
  static constexpr const char* kNames[] = {"a boolean", "an integer", "an integer", "a number",
                                           "a text"};
  if (is_array) return fmt::format("an array of {} items", values.size());
  return kNames[values.at(0).index()];
}

std::optional<int64_t> as_integer(const GgufScalar& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    if (*number <= INT64_MAX) return static_cast<int64_t>(*number);
  }
  return std::nullopt;
}

std::optional<double> as_number(const GgufScalar& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto integer = as_integer(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::optional<std::string> as_text(const GgufScalar& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return std::nullopt;
}

std::optional<bool> as_boolean(const GgufScalar& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return std::nullopt;
}

}  // namespace

/// Reads typed values for the public getters below.
struct GgufFile::Getter {
  const GgufFile& file;
  std::string_view key;
  const char* expected;

  [[noreturn]] void wrong_type(const std::string& found) const {
    fail("wrong type: {}: key {}: expected {}, got {}", file.path_.string(), key, expected, found);
  }

  template <typename Convert>
  auto scalar(Convert convert) const -> typename decltype(convert(GgufScalar{}))::value_type {
    const auto found = file.values_.find(key);
    if (found == file.values_.end()) {
      fail("missing key: {}: expected {} at {}", file.path_.string(), expected, key);
    }
    const bool is_array = file.is_array_.find(key)->second;
    if (!is_array) {
      if (auto value = convert(found->second.at(0))) return *value;
    }
    wrong_type(describe(found->second, is_array));
  }

  template <typename Convert>
  auto array(Convert convert) const
      -> std::vector<typename decltype(convert(GgufScalar{}))::value_type> {
    const auto found = file.values_.find(key);
    if (found == file.values_.end()) {
      fail("missing key: {}: expected {} at {}", file.path_.string(), expected, key);
    }
    if (!file.is_array_.find(key)->second) wrong_type(describe(found->second, false));
    std::vector<typename decltype(convert(GgufScalar{}))::value_type> items;
    items.reserve(found->second.size());
    for (const GgufScalar& value : found->second) {
      auto item = convert(value);
      if (!item) wrong_type(fmt::format("item {}: {}", items.size(), describe({value}, false)));
      items.push_back(std::move(*item));
    }
    return items;
  }
};

int64_t GgufTensor::numel() const {
  const auto numel = checked_numel(shape);
  DF_ASSERT(numel.has_value(), "tensor={}", name);
  return *numel;
}

void GgufTensor::widen(std::span<float> out) const {
  DF_ASSERT(static_cast<int64_t>(out.size()) == numel(), "tensor={} out={}", name, out.size());
  widen_blocks(type, bytes, out);
}

std::vector<int64_t> GgufTensor::integers() const {
  if (type != GgufType::kI64) {
    fail("GGUF tensor {}: expected I64, got {}", name, gguf_type_name(type));
  }
  std::vector<int64_t> values(static_cast<size_t>(numel()));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::get(std::string_view name) const {
  if (const GgufTensor* tensor = find(name)) return *tensor;
  std::vector<std::string_view> names;
  for (const GgufTensor& tensor : tensors_) names.emplace_back(tensor.name);
  fail("missing tensor: {}: expected {} among its {} tensors\n  hint: the nearest names are {}",
       path_.string(), name, tensors_.size(), fmt::join(closest_names(name, names), ", "));
}

bool GgufFile::has(std::string_view key) const {
  return values_.find(key) != values_.end();
}

const std::vector<GgufScalar>& GgufFile::values(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) fail("missing key: {}: expected {}", path_.string(), key);
  return found->second;
}

bool GgufFile::is_array(std::string_view key) const {
  const auto found = is_array_.find(key);
  return found != is_array_.end() && found->second;
}

std::vector<std::string> GgufFile::keys(std::string_view prefix) const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) {
    if (key.starts_with(prefix)) keys.push_back(key);
  }
  return keys;
}

std::string GgufFile::string(std::string_view key) const {
  return Getter{*this, key, "a text"}.scalar(as_text);
}

int64_t GgufFile::integer(std::string_view key) const {
  return Getter{*this, key, "an integer"}.scalar(as_integer);
}

int64_t GgufFile::integer(std::string_view key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double GgufFile::number(std::string_view key) const {
  return Getter{*this, key, "a number"}.scalar(as_number);
}

double GgufFile::number(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool GgufFile::boolean(std::string_view key, bool fallback) const {
  return has(key) ? Getter{*this, key, "a boolean"}.scalar(as_boolean) : fallback;
}

std::vector<std::string> GgufFile::strings(std::string_view key) const {
  return Getter{*this, key, "an array of texts"}.array(as_text);
}

std::vector<int64_t> GgufFile::integers(std::string_view key) const {
  return Getter{*this, key, "an array of integers"}.array(as_integer);
}

std::vector<bool> GgufFile::booleans(std::string_view key) const {
  return Getter{*this, key, "an array of booleans"}.array(as_boolean);
}

}  // namespace dflash::io
