#include "draft/folder_tensors.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "nn/finite.h"
#include "nn/tensor_io.h"

namespace dflash::draft {
namespace {

struct Foreign {
  const char* part;
  const char* feature;
};

// Tensors that mean another model than ours; parts of names, as programs nest them differently.
constexpr Foreign kForeign[] = {
    {"qkv_proj", "a fused q/k/v projection"},
    {"g_proj", "gated attention"},
    {"aux_hidden_norms", "one norm a tap"},
    {"mask_embedding", "an own mask embedding"},
    {"sink", "an attention sink"},
    {"markov", "a Markov head (DSpark)"},
    {"confidence", "a confidence head (DSpark)"},
    {"conf_proj", "a confidence head (DSpark)"},
    {"prefix_gru", "Domino's head"},
    {"embed_proj", "Domino's head"},
    {"selector", "DFlash2"},
    {"_conv", "DFlash2"},
    {"experts", "a mixture of experts"},
};

}  // namespace

std::string canonical_name(std::string name) {
  if (name.starts_with("model.")) name = name.substr(6);
  if (name.starts_with("midlayer.")) name = "layers.0." + name.substr(9);
  if (name == "encoder.fc.weight") return "fc.weight";
  if (name == "encoder.output_norm_enc.weight") return "hidden_norm.weight";
  return name;
}

void refuse_foreign(const std::string& where, const std::string& name) {
  for (const Foreign& foreign : kForeign) {
    if (name.find(foreign.part) != std::string::npos) {
      fail("{}: {}: {} is not implemented\n  hint: this program runs plain DFlash drafters", where,
           name, foreign.feature);
    }
  }
}

int64_t target_hidden_size(const std::string& where, const DraftSpec& spec,
                           const std::vector<int64_t>& fc_shape) {
  const auto n = static_cast<int64_t>(spec.taps.size());
  if (fc_shape.size() != 2 || fc_shape[1] < n || fc_shape[1] % n != 0) {
    fail("{}: fc.weight: expected [{}, {} taps * target's hidden size], got [{}]", where,
         spec.hidden_size, n, fmt::join(fc_shape, ", "));
  }
  return fc_shape[1] / n;
}

FolderTensors read_folder_tensors(const std::shared_ptr<const io::Checkpoint>& file,
                                  const std::vector<std::string>& skip) {
  const std::string where = file->path().string();
  FolderTensors result;
  for (const io::TensorView& view : file->tensors()) {
    if (std::find(skip.begin(), skip.end(), view.name) != skip.end()) continue;
    const std::string name = canonical_name(view.name);
    refuse_foreign(where, name);
    const bool is_float = view.dtype == io::Dtype::kF32 || view.dtype == io::Dtype::kBF16 ||
                          view.dtype == io::Dtype::kF16;
    if (!is_float) {
      fail("{}: {}: expected F32, BF16 or F16, got {}", where, view.name,
           io::dtype_name(view.dtype));
    }
    // A copy of our own: the file is mapped read-only, weights are trained in place.
    const at::Tensor stored = nn::to_tensor(view, file);
    nn::expect_finite(stored, where, view.name);
    if (name == "embed_tokens.weight") {
      result.tables.embed_VD = stored.clone();
    } else if (name == "lm_head.weight") {
      result.tables.head_VD = stored.clone();
    } else if (!result.parameters
                    .emplace(name, stored.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true))
                    .second) {
      fail("{}: {}: expected one tensor of this name, got two spellings of it", where, name);
    }
  }
  return result;
}

std::optional<std::vector<int64_t>> read_ids(const io::Checkpoint& file, const std::string& name) {
  const io::TensorView* view = file.find(name);
  if (view == nullptr) return std::nullopt;
  if (view->dtype != io::Dtype::kI64 || view->shape.size() != 1) {
    fail("{}: {}: expected a list of int64 ids, got {} [{}]", file.path().string(), name,
         io::dtype_name(view->dtype), fmt::join(view->shape, ", "));
  }
  std::vector<int64_t> ids(static_cast<size_t>(view->numel()));
  std::memcpy(ids.data(), view->bytes.data(), view->bytes.size());
  return ids;
}

}  // namespace dflash::draft
