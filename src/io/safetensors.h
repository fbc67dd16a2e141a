// safetensors: strict reader over a mapped file, sharded folders, atomic writer. Agrees with the
// reference reader (MODELS.md 0.1, LIBTORCH.md 7.1): contiguous, no overlap, exact end, no
// duplicate keys.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensor_view.h"

namespace dflash::io {

using Metadata = std::map<std::string, std::string>;

/// Tensors of one file or of all shards of a folder. Views stay valid while this object lives; it
/// is shared so that tensors made from views can hold on to it.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  /// `path` is a .safetensors file, or a folder with model.safetensors.index.json or
  /// model.safetensors. Errors: missing, damaged, unknown dtype, a shard that lacks a tensor.
  static std::shared_ptr<const Checkpoint> open(const std::filesystem::path& path);

  const std::vector<TensorView>& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  const TensorView* find(std::string_view name) const;  // nullptr when absent
  /// Error names the file and the closest names when absent.
  const TensorView& get(std::string_view name) const;
  const std::filesystem::path& path() const { return path_; }

 protected:
  std::filesystem::path path_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  Metadata metadata_;
};

/// Writes atomically; adds {"format":"pt"} to the metadata when absent. Error: duplicate names,
/// bytes that do not match shape and dtype, disk full.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const Metadata& metadata = {});

}  // namespace dflash::io
