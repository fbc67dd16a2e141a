// FeatureWriter: shards one by one, then the index that names them; what the index does not name is
// written again.
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/profile.h"
#include "data/feature_files.h"
#include "data/features.h"
#include "data/views.h"

namespace dflash::data {
namespace fs = std::filesystem;
namespace {

void check_shard(const FeatureInfo& info, const FeatureShard& shard) {
  const auto tokens = static_cast<int64_t>(shard.ids.size());
  const int64_t width = io::dtype_bytes(info.dtype);
  const auto expect = [](const char* what, int64_t wanted, size_t found) {
    DF_ASSERT(static_cast<int64_t>(found) == wanted, "{}: expected {}, got {}", what, wanted,
              found);
  };
  expect("offsets", static_cast<int64_t>(shard.documents.size()) + 1, shard.offsets.size());
  expect("offsets.back", tokens, static_cast<size_t>(shard.offsets.back()));
  expect("argmax", tokens, shard.argmax.size());
  expect("taps bytes", tokens * feature_size(info) * width, shard.taps.size());
  expect("last bytes", info.has_last ? tokens * info.hidden_size * width : 0, shard.last.size());
}

std::vector<int32_t> narrow(const std::vector<int64_t>& ids) {
  std::vector<int32_t> out;
  out.reserve(ids.size());
  for (int64_t id : ids) {
    DF_ASSERT(id >= 0 && id <= INT32_MAX, "id={}", id);
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

}  // namespace

FeatureWriter::FeatureWriter(fs::path folder, const FeatureInfo& info)
    : folder_(std::move(folder)), info_(info) {
  make_folder(folder_);
  const fs::path index = folder_ / "features.json";
  if (!fs::exists(index)) return;
  const Json json = read_features_index(index);
  reading(index, [&] { resume(json); });
}

void FeatureWriter::resume(const Json& json) {
  const FeatureInfo found = FeatureInfo::from_json(json);
  check_features(found, info_.taps, info_.hidden_size, info_.target_fingerprint);
  expect_same("dtype", std::string(io::dtype_name(info_.dtype)),
              std::string(io::dtype_name(found.dtype)));
  expect_same("has_last", info_.has_last, found.has_last);
  check_dataset(found, info_.dataset_fingerprint);
  if (json.at("complete").get<bool>()) {
    fail("features: {}: complete already\n  hint: choose another folder, or remove this one",
         folder_.string());
  }
  if (found.storage != info_.storage || found.kernels != info_.kernels) {
    log_warning("{}: captured with {} weights and {} kernels so far, now with {} and {}",
                folder_.string(), found.storage, found.kernels, info_.storage, info_.kernels);
  }
  for (const Json& entry : json.at("shards")) {
    const ShardEntry shard{entry.at("file").get<std::string>(),
                           entry.at("documents").get<int64_t>(), entry.at("tokens").get<int64_t>(),
                           entry.at("bytes").get<int64_t>()};
    const fs::path path = folder_ / shard_name(shards_.size());
    check_shard_size(path, shard.bytes);
    const auto file = io::Checkpoint::open(path);
    const auto documents = values_of<int64_t>(*file, "documents");
    done_.insert(done_.end(), documents.begin(), documents.end());
    shards_.push_back(shard);
  }
}

void FeatureWriter::write(const FeatureShard& shard) {
  const profile::Range range("features", "write", [&] {
    return profile::Work{.bytes = static_cast<double>(shard.taps.size() + shard.last.size())};
  });
  check_shard(info_, shard);
  const auto tokens = static_cast<int64_t>(shard.ids.size());
  const std::vector<int32_t> ids = narrow(shard.ids), argmax = narrow(shard.argmax);
  // Widest type first keeps every tensor aligned in the file.
  std::vector<io::TensorView> tensors = {
      view_of("offsets", shard.offsets),
      view_of("documents", shard.documents),
      view_of("ids", ids),
      view_of("argmax", argmax),
      {"taps", info_.dtype, {tokens, feature_size(info_)}, shard.taps}};
  if (info_.has_last) {
    tensors.push_back({"last", info_.dtype, {tokens, info_.hidden_size}, shard.last});
  }
  const std::string name = shard_name(shards_.size());
  io::write_safetensors(folder_ / name, tensors, {{"content", std::string(kFeaturesFormat)}});
  shards_.push_back({name, static_cast<int64_t>(shard.documents.size()), tokens,
                     static_cast<int64_t>(fs::file_size(folder_ / name))});
  done_.insert(done_.end(), shard.documents.begin(), shard.documents.end());
  write_index(/*complete=*/false);
}

void FeatureWriter::finish() {
  write_index(/*complete=*/true);
}

void FeatureWriter::write_index(bool complete) const {
  Json json = info_.to_json();
  json["format"] = kFeaturesFormat;
  json["version"] = kFeaturesVersion;
  json["complete"] = complete;
  json["shards"] = Json::array();
  for (const ShardEntry& shard : shards_) {
    json["shards"].push_back({{"file", shard.file},
                              {"documents", shard.documents},
                              {"tokens", shard.tokens},
                              {"bytes", shard.bytes}});
  }
  write_json(folder_ / "features.json", json);
}

}  // namespace dflash::data
