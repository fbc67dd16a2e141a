#include "data/features.h"

#include <string>
#include <system_error>

#include "base/files.h"
#include "data/feature_files.h"

namespace dflash::data {
namespace fs = std::filesystem;
namespace {

io::Dtype parse_dtype(const std::string& name) {
  for (io::Dtype dtype : {io::Dtype::kBF16, io::Dtype::kF32}) {
    if (io::dtype_name(dtype) == name) return dtype;
  }
  fail("features: dtype: expected BF16 or F32, got {}", name);
}

}  // namespace

std::string shard_name(size_t shard) {
  return fmt::format("part-{:05}.safetensors", shard);
}

int64_t feature_size(const FeatureInfo& info) {
  return static_cast<int64_t>(info.taps.size()) * info.hidden_size;
}

Json read_features_index(const fs::path& path) {
  if (!fs::exists(path)) {
    fail("features: {}: missing\n  hint: give a folder written by `capture`", path.string());
  }
  Json json = read_json(path);
  if (!json.is_object() || json.value("format", Json()) != kFeaturesFormat) {
    fail("{}: expected format {}", path.string(), kFeaturesFormat);
  }
  if (json.value("version", Json()) != kFeaturesVersion) {
    fail("{}: expected version {}, got {}", path.string(), kFeaturesVersion,
         json.value("version", Json()).dump());
  }
  if (!json.value("shards", Json()).is_array()) fail("{}: shards: expected a list", path.string());
  return json;
}

void expect_same(const char* what, const Json& wanted, const Json& found) {
  if (wanted == found) return;
  fail("features: {}: expected {}, got {}\n  hint: capture again, or train with what was captured",
       what, wanted.dump(), found.dump());
}

void check_shard_size(const fs::path& path, int64_t expected) {
  std::error_code error;
  const auto found = fs::file_size(path, error);
  if (error) fail("features shard: {}: {}", path.string(), error.message());
  if (static_cast<int64_t>(found) != expected) {
    fail(
        "features shard: {}: expected {} bytes, found {}\n"
        "  hint: the file is damaged; capture again into another folder",
        path.string(), expected, found);
  }
}

Json FeatureInfo::to_json() const {
  return {{"target_fingerprint", target_fingerprint},
          {"storage", storage},
          {"kernels", kernels},
          {"taps", taps},
          {"hidden_size", hidden_size},
          {"dtype", std::string(io::dtype_name(dtype))},
          {"has_last", has_last},
          {"dataset_fingerprint", dataset_fingerprint},
          {"last_is_normed", false}};
}

FeatureInfo FeatureInfo::from_json(const Json& json) {
  FeatureInfo info;
  info.target_fingerprint = json.at("target_fingerprint").get<std::string>();
  info.storage = json.at("storage").get<std::string>();
  info.kernels = json.at("kernels").get<std::string>();
  info.taps = json.at("taps").get<std::vector<int64_t>>();
  info.hidden_size = json.at("hidden_size").get<int64_t>();
  info.dtype = parse_dtype(json.at("dtype").get<std::string>());
  info.has_last = json.at("has_last").get<bool>();
  info.dataset_fingerprint = json.at("dataset_fingerprint").get<std::string>();
  if (json.at("last_is_normed").get<bool>()) {
    fail("features: final hidden state: expected before the final norm, got after it");
  }
  return info;
}

void check_dataset(const FeatureInfo& info, const std::string& dataset_fingerprint) {
  if (info.dataset_fingerprint == dataset_fingerprint) return;
  fail(
      "features: dataset fingerprint: expected {}, got {}: they are of another dataset\n"
      "  hint: choose another --out, or remove this one",
      dataset_fingerprint, info.dataset_fingerprint);
}

void check_features(const FeatureInfo& info, const std::vector<int64_t>& taps, int64_t hidden_size,
                    const std::string& target_fingerprint) {
  if (!target_fingerprint.empty()) {  // first: another target explains all other differences
    expect_same("target fingerprint", target_fingerprint, info.target_fingerprint);
  }
  if (!taps.empty()) {
    expect_same("number of taps", taps.size(), info.taps.size());
    expect_same("taps", taps, info.taps);
  }
  expect_same("hidden size", hidden_size, info.hidden_size);
}

}  // namespace dflash::data
