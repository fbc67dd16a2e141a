// Which files make a checkpoint, and the union of their tensors.
#include "io/safetensors.h"

#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json_strict.h"
#include "base/suggest.h"
#include "io/safetensors_header.h"

namespace dflash::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

/// Tensor -> shard, as the index file says.
using WeightMap = std::map<std::string, std::string>;

void check_shard_name(const fs::path& index, const std::string& tensor, const std::string& shard) {
  const bool plain = !shard.empty() &&
                     shard.find_first_of(std::string("/\\\0", 3)) == std::string::npos &&
                     shard.find("..") == std::string::npos;
  if (!plain) {
    fail("damaged index: {}: tensor {}: expected a file of the same folder, got \"{}\"",
         index.string(), tensor, shard);
  }
}

WeightMap read_index(const fs::path& path) {
  constexpr uint64_t kMaxIndexBytes = 200'000'000;
  Json index;
  try {
    index = parse_json_strictly(read_text(path, kMaxIndexBytes), {.max_depth = 16});
  } catch (const Error& error) {
    fail("damaged index: {}: {}", path.string(), error.what());
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    fail("damaged index: {}: expected an object \"weight_map\"", path.string());
  }
  WeightMap map;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) {
      fail("damaged index: {}: tensor {}: expected a file name, got {}", path.string(), tensor,
           shard.type_name());
    }
    map[tensor] = shard.get<std::string>();
    check_shard_name(path, tensor, map[tensor]);
  }
  if (map.empty()) fail("damaged index: {}: \"weight_map\" is empty", path.string());
  return map;
}

/// The .safetensors files of a folder, sorted, for messages.
std::string list_safetensors(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    if (entry.path().extension() == ".safetensors") names.insert(entry.path().filename().string());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

class OpenedCheckpoint final : public Checkpoint {
 public:
  explicit OpenedCheckpoint(const fs::path& path) {
    path_ = path;
    std::error_code code;
    if (!fs::exists(path, code)) fail("no checkpoint: {}: no such file or folder", path.string());
    if (!fs::is_directory(path, code)) {
      add_file(path);
    } else if (fs::exists(path / kIndexName)) {
      open_shards(path);
    } else if (fs::exists(path / kSingleName)) {
      add_file(path / kSingleName);
    } else {
      fail_without_index(path);
    }
  }

 private:
  [[noreturn]] static void fail_without_index(const fs::path& folder) {
    const std::string present = list_safetensors(folder);
    if (present.empty()) {
      fail("no checkpoint: {}: expected {} or {} in this folder", folder.string(), kSingleName,
           kIndexName);
    }
    fail(
        "no checkpoint: {}: {} is missing, but there are {}\n  hint: fetch the index too, or name "
        "one file",
        folder.string(), kIndexName, present);
  }

  void open_shards(const fs::path& folder) {
    const WeightMap map = read_index(folder / kIndexName);
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : map) shards.insert(shard);
    for (const std::string& shard : shards) {
      if (!fs::exists(folder / shard)) {
        fail("missing shard: {}: named by {}\n  hint: the download is not complete",
             (folder / shard).string(), kIndexName);
      }
      add_file(folder / shard);
    }
    for (const auto& [tensor, shard] : map) {
      const auto found = file_of_.find(tensor);
      if (found == file_of_.end() || found->second != folder / shard) {
        fail("missing tensor: {}: {} lists {} in it, but it is not there",
             (folder / shard).string(), kIndexName, tensor);
      }
    }
  }

  void add_file(const fs::path& path) {
    auto file = MappedFile::open(path);
    ParsedSafetensors parsed = parse_safetensors(*file);
    for (TensorView& view : parsed.tensors) {
      const auto [other, is_new] = file_of_.emplace(view.name, path);
      if (!is_new) {
        fail("duplicate tensor: {}: {} is in {} as well", path.string(), view.name,
             other->second.string());
      }
      index_[view.name] = tensors_.size();
      tensors_.push_back(std::move(view));
    }
    metadata_.merge(parsed.metadata);
    files_.push_back(std::move(file));
  }

  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::map<std::string, fs::path, std::less<>> file_of_;
};

}  // namespace

std::shared_ptr<const Checkpoint> Checkpoint::open(const fs::path& path) {
  return std::make_shared<OpenedCheckpoint>(path);
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorView& Checkpoint::get(std::string_view name) const {
  if (const TensorView* view = find(name)) return *view;
  std::vector<std::string_view> names;
  for (const TensorView& view : tensors_) names.emplace_back(view.name);
  fail("missing tensor: {}: expected {} among its {} tensors\n  hint: the nearest names are {}",
       path_.string(), name, tensors_.size(), fmt::join(closest_names(name, names), ", "));
}

}  // namespace dflash::io
