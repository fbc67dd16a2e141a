// FeatureReader: every size, type and offset is checked when the folder is opened.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/feature_files.h"
#include "data/features.h"
#include "data/views.h"

namespace dflash::data {
namespace fs = std::filesystem;
namespace {

/// A [T, columns] tensor of the features' dtype; Error when the shard holds another.
const io::TensorView& rows_of(const io::Checkpoint& file, std::string_view name, io::Dtype dtype,
                              int64_t tokens, int64_t columns) {
  const io::TensorView& view = file.get(name);
  if (view.dtype != dtype || view.shape != std::vector<int64_t>{tokens, columns}) {
    fail("{}: {}: expected {} [{}, {}], got {} [{}]", file.path().string(), name,
         io::dtype_name(dtype), tokens, columns, io::dtype_name(view.dtype),
         fmt::join(view.shape, ", "));
  }
  return view;
}

}  // namespace

FeatureReader::FeatureReader(const fs::path& folder) : folder_(folder) {
  const fs::path index = folder / "features.json";
  const Json json = read_features_index(index);
  reading(index, [&] {
    info_ = FeatureInfo::from_json(json);
    if (!json.at("complete").get<bool>()) {
      fail(
          "features: {}: incomplete\n  hint: run `capture` again with the same settings; it goes "
          "on where it stopped",
          folder.string());
    }
    for (const Json& entry : json.at("shards")) {
      open_shard(folder / shard_name(shards_.size()), entry);
    }
  });
}

void FeatureReader::open_shard(const fs::path& path, const Json& entry) {
  check_shard_size(path, entry.at("bytes").get<int64_t>());
  auto file = io::Checkpoint::open(path);
  const auto ids = values_of<int32_t>(*file, "ids");
  const auto argmax = values_of<int32_t>(*file, "argmax");
  const auto documents = values_of<int64_t>(*file, "documents");
  const auto offsets = values_of<int64_t>(*file, "offsets");
  const auto tokens = static_cast<int64_t>(ids.size());
  if (argmax.size() != ids.size()) {
    fail("{}: argmax: expected {} entries, got {}", path.string(), ids.size(), argmax.size());
  }
  for (const int32_t id : argmax) {
    if (id < 0) fail("{}: argmax: expected token ids, got {}", path.string(), id);
    largest_argmax_ = std::max<int64_t>(largest_argmax_, id);
  }
  check_offsets(*file, offsets, documents.size(), ids.size());
  rows_of(*file, "taps", info_.dtype, tokens, feature_size(info_));
  if (info_.has_last) rows_of(*file, "last", info_.dtype, tokens, info_.hidden_size);
  for (size_t d = 0; d < documents.size(); ++d) {
    const bool fresh =
        places_.emplace(documents[d], Place{shards_.size(), offsets[d], offsets[d + 1]}).second;
    if (!fresh) fail("{}: document {} is stored twice", path.string(), documents[d]);
  }
  shards_.push_back(std::move(file));
}

void FeatureReader::check_vocabulary(int64_t vocab_size) const {
  if (largest_argmax_ < vocab_size) return;
  fail(
      "features: {}: argmax: expected ids in [0, {}), got {}\n  hint: they were captured from a "
      "target with another vocabulary, or are damaged",
      folder_.string(), vocab_size, largest_argmax_);
}

bool FeatureReader::has(int64_t document) const {
  return places_.contains(document);
}

DocumentFeatures FeatureReader::get(int64_t document, std::span<const int64_t> ids) const {
  const auto found = places_.find(document);
  if (found == places_.end()) {
    fail(
        "features: {}: document {} is absent\n  hint: capture left it out, or the features belong "
        "to another dataset",
        folder_.string(), document);
  }
  const Place& place = found->second;
  const auto& file = *shards_[place.shard];
  const auto all = values_of<int32_t>(file, "ids").subspan(place.begin, place.end - place.begin);
  if (ids.size() > all.size() || !std::equal(ids.begin(), ids.end(), all.begin())) {
    fail(
        "features: {}: document {}: its {} ids are not the {} ids it was captured from\n"
        "  hint: capture the dataset that you train on",
        folder_.string(), document, ids.size(), all.size());
  }
  const int64_t rows = static_cast<int64_t>(ids.size());
  const int64_t width = io::dtype_bytes(info_.dtype), row_bytes = feature_size(info_) * width;
  DocumentFeatures out;
  out.taps = file.get("taps").bytes.subspan(place.begin * row_bytes, rows * row_bytes);
  if (info_.has_last) {
    const int64_t last_bytes = info_.hidden_size * width;
    out.last = file.get("last").bytes.subspan(place.begin * last_bytes, rows * last_bytes);
  }
  out.ids = all.first(rows);
  out.argmax = values_of<int32_t>(file, "argmax").subspan(place.begin, rows);
  out.owner = shards_[place.shard];
  return out;
}

}  // namespace dflash::data
