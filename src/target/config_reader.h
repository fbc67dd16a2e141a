// Typed access to a Hugging Face config.json: every error names the file, the key, what was
// expected and what was found; keys that nobody read are found by reject_unknown. Multi-modal
// wrappers nest the text model's keys in `text_config`, which then wins over the top level.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace dflash::target {

class ConfigReader {
 public:
  /// Reads folder/config.json; Error when missing or not an object.
  explicit ConfigReader(const std::filesystem::path& folder);
  ConfigReader(Json root, std::filesystem::path path);

  /// Present and not null.
  bool has(const std::string& key) const;
  int64_t integer(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t fallback) const;
  double number(const std::string& key) const;
  double number(const std::string& key, double fallback) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string string(const std::string& key) const;
  std::string string(const std::string& key, const std::string& fallback) const;
  /// An integer or a list of integers; empty when absent.
  std::vector<int64_t> ids(const std::string& key) const;
  /// A list of texts; empty when absent.
  std::vector<std::string> strings(const std::string& key) const;
  /// A nested object; its own keys are read and checked by another reader.
  ConfigReader object(const std::string& key) const;

  /// True when either the top level or `text_config` says so (transformers#43429).
  bool flag_at_any_level(const std::string& key) const;

  /// Error for a key that was neither read nor is in `harmless`, unless its value is neutral (null,
  /// false, 0, empty) or a note of some tool ("_...", "..._version").
  void reject_unknown(const std::set<std::string>& harmless) const;

  /// Path of the file and, for nested objects, the keys that lead here; for error texts.
  const std::string& where() const { return where_; }

 private:
  const Json* find(const std::string& key) const;
  [[noreturn]] void wrong(const std::string& key, std::string_view expected,
                          const Json* found) const;

  Json root_, values_;
  std::string where_;
  mutable std::set<std::string> read_;
};

/// End ids of config.json and, if there is one, generation_config.json beside it; ascending.
std::vector<int64_t> all_eos_ids(const std::filesystem::path& folder, const ConfigReader& config);

/// Keys of transformers' generic configuration that do not change the forward pass.
const std::set<std::string>& harmless_keys();

}  // namespace dflash::target
