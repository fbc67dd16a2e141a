#include "draft/zlab_keys.h"

#include "base/error.h"

namespace dflash::draft {
namespace {

constexpr int64_t kLargest = 1LL << 31;  // of any count or id in a config
constexpr size_t kLongestList = 1 << 12;

// A value for an error message: short, whatever the file holds.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

}  // namespace

ZlabKeys::ZlabKeys(const Json& config, std::string name)
    : root_(config), nested_(Json::object()), name_(std::move(name)) {
  if (!root_.is_object()) fail("{}: expected a JSON object, got {}", name_, root_.type_name());
  const auto found = root_.find("dflash_config");
  if (found == root_.end() || found->is_null()) return;
  if (!found->is_object()) refuse("dflash_config", "an object", *found);
  nested_ = *found;
}

void ZlabKeys::refuse(const std::string& key, const std::string& expected, const Json& got) const {
  fail("{}: {}: expected {}, got {}", name_, key, expected, shown(got));
}

void ZlabKeys::not_implemented(const std::string& key, const std::string& feature) const {
  fail("{}: {}: {} is not implemented\n  hint: this program runs plain DFlash drafters", name_, key,
       feature);
}

const Json* ZlabKeys::find(const std::string& key) const {
  const auto present = [&](const Json& object) -> const Json* {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  };
  const Json* outer = present(root_);
  const Json* inner = present(nested_);
  if (outer && inner && *outer != *inner) {
    fail("{}: {}: expected one value, got {} at the top and {} in dflash_config", name_, key,
         shown(*outer), shown(*inner));
  }
  return outer ? outer : inner;
}

int64_t as_integer(const ZlabKeys& keys, const std::string& key, const Json& value) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(kLargest)
                        : value.is_number_integer() && std::abs(value.get<int64_t>()) <= kLargest;
  if (!fits) keys.refuse(key, fmt::format("an integer up to {}", kLargest), value);
  return value.get<int64_t>();
}

double as_number(const ZlabKeys& keys, const std::string& key, const Json& value) {
  if (!value.is_number()) keys.refuse(key, "a number", value);
  return value.get<double>();
}

std::optional<int64_t> ZlabKeys::integer(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  return as_integer(*this, key, *value);
}

int64_t ZlabKeys::required_integer(const std::string& key) const {
  const std::optional<int64_t> value = integer(key);
  if (!value) fail("{}: {}: expected an integer, got none", name_, key);
  return *value;
}

std::optional<double> ZlabKeys::number(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  return as_number(*this, key, *value);
}

bool ZlabKeys::flag(const std::string& key, bool absent) const {
  const Json* value = find(key);
  if (!value) return absent;
  if (!value->is_boolean()) refuse(key, "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> ZlabKeys::text(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(key, "a string", *value);
  return value->get<std::string>();
}

std::optional<std::vector<int64_t>> ZlabKeys::integers(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_array() || value->empty() || value->size() > kLongestList) {
    refuse(key, fmt::format("a list of 1 to {} integers", kLongestList), *value);
  }
  std::vector<int64_t> result;
  for (const Json& item : *value) result.push_back(as_integer(*this, key, item));
  return result;
}

}  // namespace dflash::draft
