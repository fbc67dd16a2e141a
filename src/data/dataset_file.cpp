// save_dataset, load_dataset: the folder's files.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/output.h"
#include "data/dataset.h"
#include "data/views.h"

namespace dflash::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFormat = "dflash-dataset";
constexpr int64_t kVersion = 1;
constexpr int64_t kPartTokens = int64_t{1} << 26;  // whole documents until this many tokens

std::string part_name(int64_t part) {
  return fmt::format("part-{:05}.safetensors", part);
}

/// Documents [first, last) fill one part.
int64_t part_end(const Dataset& dataset, int64_t first) {
  int64_t last = first + 1;
  while (last < dataset.num_documents() &&
         dataset.offsets[last + 1] - dataset.offsets[first] <= kPartTokens) {
    ++last;
  }
  return last;
}

void write_part(const fs::path& path, const Dataset& dataset, int64_t first, int64_t last) {
  const int64_t begin = dataset.offsets[first], end = dataset.offsets[last];
  std::vector<int64_t> offsets;
  for (int64_t d = first; d <= last; ++d) offsets.push_back(dataset.offsets[d] - begin);
  const std::vector<uint64_t> keys(dataset.keys.begin() + first, dataset.keys.begin() + last);
  std::vector<int32_t> ids;
  ids.reserve(end - begin);
  for (int64_t t = begin; t < end; ++t) {
    if (dataset.ids[t] < 0 || dataset.ids[t] > INT32_MAX) {
      fail("{}: token id: expected 0 to {}, got {}", path.string(), INT32_MAX, dataset.ids[t]);
    }
    ids.push_back(static_cast<int32_t>(dataset.ids[t]));
  }
  const std::vector<uint8_t> mask(dataset.loss_mask.begin() + begin,
                                  dataset.loss_mask.begin() + end);
  // Widest type first keeps every tensor aligned in the file.
  io::write_safetensors(path,
                        {view_of("offsets", offsets), view_of("keys", keys), view_of("ids", ids),
                         view_of("loss_mask", mask)},
                        {{"content", std::string(kFormat)}});
}

void load_part(const fs::path& path, Dataset& dataset) {
  const auto file = io::Checkpoint::open(path);
  const auto ids = values_of<int32_t>(*file, "ids");
  const auto mask = values_of<uint8_t>(*file, "loss_mask");
  const auto offsets = values_of<int64_t>(*file, "offsets");
  const auto keys = values_of<uint64_t>(*file, "keys");
  if (ids.size() != mask.size()) {
    fail("{}: expected one mask entry a token, got {} ids and {} mask entries", path.string(),
         ids.size(), mask.size());
  }
  check_offsets(*file, offsets, keys.size(), ids.size());
  const int64_t base = dataset.num_tokens();
  dataset.ids.insert(dataset.ids.end(), ids.begin(), ids.end());
  dataset.loss_mask.insert(dataset.loss_mask.end(), mask.begin(), mask.end());
  dataset.keys.insert(dataset.keys.end(), keys.begin(), keys.end());
  for (size_t d = 1; d < offsets.size(); ++d) dataset.offsets.push_back(base + offsets[d]);
}

int64_t integer_of(const fs::path& path, const Json& info, const char* key) {
  const auto found = info.find(key);
  if (found == info.end() || !found->is_number_integer()) {
    fail("{}: {}: expected a whole number", path.string(), key);
  }
  return found->get<int64_t>();
}

Json read_info(const fs::path& path) {
  if (!fs::exists(path)) {
    fail(
        "dataset: {}: missing\n  hint: give a folder written by `prepare`; a folder whose write "
        "was interrupted has no dataset.json",
        path.string());
  }
  Json info = read_json(path);
  if (!info.is_object() || info.value("format", Json()) != kFormat) {
    fail("{}: expected format {}", path.string(), kFormat);
  }
  const int64_t version = integer_of(path, info, "version");
  if (version != kVersion) {
    fail("{}: expected version {}, got {}", path.string(), kVersion, version);
  }
  return info;
}

void check_ids(const fs::path& path, const Dataset& dataset) {
  if (!dataset.info.contains("vocab_size")) return;
  const int64_t vocab = integer_of(path, dataset.info, "vocab_size");
  const auto bad = std::find_if(dataset.ids.begin(), dataset.ids.end(),
                                [&](int64_t id) { return id < 0 || id >= vocab; });
  if (bad == dataset.ids.end()) return;
  fail("{}: token {}: expected an id from 0 to {}, got {}", path.string(),
       bad - dataset.ids.begin(), vocab - 1, *bad);
}

}  // namespace

void save_dataset(const fs::path& folder, const Dataset& dataset) {
  const auto lock = lock_folder(folder);
  claim_folder(folder, "dataset.json");
  const auto tokens = static_cast<uint64_t>(dataset.num_tokens());
  require_free_space(folder,
                     tokens * 5 + static_cast<uint64_t>(dataset.num_documents()) * 16 + (1 << 20));
  const fs::path info_path = folder / "dataset.json";
  std::error_code ignored;
  fs::remove(info_path, ignored);  // from here to the end the folder is no dataset
  int64_t parts = 0;
  for (int64_t first = 0; first < dataset.num_documents(); ++parts) {
    const int64_t last = part_end(dataset, first);
    write_part(folder / part_name(parts), dataset, first, last);
    first = last;
  }
  Json info = dataset.info;
  info["format"] = kFormat;
  info["version"] = kVersion;
  info["parts"] = parts;
  info["documents"] = dataset.num_documents();
  info["tokens"] = dataset.num_tokens();
  info["supervised_tokens"] = dataset.num_supervised();
  info["fingerprint"] = dataset_fingerprint(dataset);
  write_json(info_path, info);
}

Dataset load_dataset(const fs::path& folder) {
  const fs::path info_path = folder / "dataset.json";
  Dataset dataset;
  dataset.info = read_info(info_path);
  const int64_t parts = integer_of(info_path, dataset.info, "parts");
  for (int64_t part = 0; part < parts; ++part) load_part(folder / part_name(part), dataset);
  const auto expect = [&](const char* key, int64_t found) {
    const int64_t wanted = integer_of(info_path, dataset.info, key);
    if (wanted == found) return;
    fail("{}: {}: expected {}, found {} in its parts\n  hint: prepare the dataset again",
         folder.string(), key, wanted, found);
  };
  expect("documents", dataset.num_documents());
  expect("tokens", dataset.num_tokens());
  expect("supervised_tokens", dataset.num_supervised());
  check_ids(info_path, dataset);
  return dataset;
}

}  // namespace dflash::data
