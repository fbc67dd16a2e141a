// Typed, bounded look-ups in a drafter's config.json, at the root or in `dflash_config`. Internal
// to draft/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace dflash::draft {

class ZlabKeys {
 public:
  /// `name`: the file, for errors. Error when the root or dflash_config is not an object.
  ZlabKeys(const Json& config, std::string name);

  const Json& root() const { return root_; }
  const Json& nested() const { return nested_; }  // an empty object when absent
  const std::string& name() const { return name_; }

  /// Value at the root or nested; null counts as absent. Error when both are there and differ.
  const Json* find(const std::string& key) const;

  std::optional<int64_t> integer(const std::string& key) const;
  int64_t required_integer(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  bool flag(const std::string& key, bool absent) const;
  std::optional<std::string> text(const std::string& key) const;
  std::optional<std::vector<int64_t>> integers(const std::string& key) const;

  /// Throws "NAME: key: expected X, got VALUE".
  [[noreturn]] void refuse(const std::string& key, const std::string& expected,
                           const Json& got) const;
  /// Throws "NAME: key: FEATURE is not implemented".
  [[noreturn]] void not_implemented(const std::string& key, const std::string& feature) const;

 private:
  const Json& root_;
  Json nested_;
  std::string name_;
};

int64_t as_integer(const ZlabKeys& keys, const std::string& key, const Json& value);
double as_number(const ZlabKeys& keys, const std::string& key, const Json& value);

}  // namespace dflash::draft
