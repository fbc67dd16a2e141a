// What writer and reader of a features folder share. Internal to data.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "data/features.h"

namespace dflash::data {

inline constexpr std::string_view kFeaturesFormat = "dflash-features";
inline constexpr int64_t kFeaturesVersion = 1;

/// Name of shard number `shard`.
std::string shard_name(size_t shard);

/// Columns of a row of taps.
int64_t feature_size(const FeatureInfo& info);

/// features.json as an object of our format; Error otherwise.
Json read_features_index(const std::filesystem::path& path);

/// Error naming `what` when the two differ.
void expect_same(const char* what, const Json& wanted, const Json& found);

/// Error when the file is not exactly as long as the index says.
void check_shard_size(const std::filesystem::path& path, int64_t expected);

/// Runs `read` and turns what the JSON library throws into an Error naming the file.
template <typename Read>
auto reading(const std::filesystem::path& path, Read read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

}  // namespace dflash::data
