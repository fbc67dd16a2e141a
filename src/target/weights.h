// Named weights of one model whatever holds them: a safetensors folder, a GGUF file, or memory.
// Families see canonical names only: Hugging Face's without the trunk's prefix
// ("embed_tokens.weight", "layers.0.mlp.up_proj.weight", "norm.weight", "lm_head.weight").
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/gguf.h"
#include "io/safetensors.h"
#include "nn/blocks.h"
#include "target/target.h"

namespace dflash::target {

struct WeightInfo {
  std::string name;       // canonical; the file's own where no canonical name is known
  std::string file_name;  // as the file spells it, for error texts
  std::string dtype;      // "BF16", "Q4_1", ...
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // as stored, for fingerprints and comparisons
};

/// What a family expects of its weights.
struct WeightSpec {
  std::string name;
  std::vector<int64_t> shape;
};

class Weights {
 public:
  virtual ~Weights() = default;

  const std::vector<WeightInfo>& list() const { return list_; }
  const WeightInfo* find(const std::string& name) const;
  /// File or folder, for error texts.
  const std::string& where() const { return where_; }
  /// The storage types in use, the most bytes first: "Q4_1, Q8_0, F32".
  std::string dtypes() const;

  /// The values in canonical layout, as f32, bf16 or f16 (whatever the file stores, quantised
  /// types widened to f32). May alias a mapped file: read-only.
  virtual at::Tensor read(const std::string& name) const = 0;
  /// The same values as blocks, when the file has them so and the kernels in use can multiply with
  /// them.
  virtual std::optional<nn::BlockWeight> read_blocks(const std::string& name,
                                                     nn::Compute compute) const;

 protected:
  void add(WeightInfo info);

  std::string where_;
  std::vector<WeightInfo> list_;
  std::map<std::string, size_t> index_;
};

/// Whether a tensor (by the file's own name) is none of the family's.
using LeftOut = std::function<bool(const std::string& file_name)>;

/// Hugging Face checkpoint. The trunk's prefix ("model.", "model.language_model.", none) is found
/// from the one tensor that ends in "embed_tokens.weight". Precomputed rotary tables, which old
/// files carry, are left out: they are rebuilt.
std::shared_ptr<const Weights> folder_weights(std::shared_ptr<const io::Checkpoint> checkpoint,
                                              const LeftOut& left_out = {});

/// How a family's GGUF tensors become canonical ones.
struct GgufNames {
  /// The canonical name, or nothing when the family has no such tensor.
  std::function<std::optional<std::string>(const std::string&)> canonical;
  /// Undoes what the converter did to the values of this (canonical) tensor; identity for most.
  std::function<at::Tensor(const std::string& name, at::Tensor values)> restore;
  /// Whether `restore` only moves whole rows of this tensor, so that it works on blocks as well.
  std::function<bool(const std::string& name)> moves_rows;
  LeftOut left_out;
};
std::shared_ptr<const Weights> gguf_weights(std::shared_ptr<const io::GgufFile> file,
                                            GgufNames names);

std::shared_ptr<const Weights> memory_weights(std::map<std::string, at::Tensor> tensors);

/// Over what the model computes (`config`, and the family's own `details`), and names, dtypes,
/// shapes and a sample of the bytes of all weights in the order of their canonical names; the same
/// whatever the sharding.
std::string fingerprint_of(const TargetConfig& config, const std::string& details,
                           const Weights& weights);

/// Error that lists every missing, misshapen and unknown tensor (the first few of each). Dimensions
/// of size 1 may be absent: converters squeeze.
void check_weights(const Weights& weights, const std::vector<WeightSpec>& expected);

}  // namespace dflash::target
