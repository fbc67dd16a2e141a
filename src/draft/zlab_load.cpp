// Weights of z-lab's folder: names brought to the canonical form, foreign tensors refused by name.
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "base/files.h"
#include "draft/zlab.h"
#include "io/safetensors.h"
#include "nn/tensor_io.h"

namespace dflash::draft {
namespace {

namespace fs = std::filesystem;

struct Foreign {
  const char* part;
  const char* feature;
};

// Tensors that mean another model than ours.
constexpr Foreign kForeign[] = {
    {"embed_tokens", "own embedding and head tables"},
    {"lm_head", "own embedding and head tables"},
    {"d2t", "speculators' vocabulary map (see import)"},
    {"t2d", "speculators' vocabulary map (see import)"},
    {"qkv_proj", "a fused q/k/v projection"},
    {"g_proj", "gated attention"},
    {"aux_hidden_norms", "one norm a tap"},
    {"mask_embedding", "an own mask embedding"},
    {"sink", "an attention sink"},
    {"markov", "a Markov head (DSpark)"},
    {"confidence", "a confidence head (DSpark)"},
    {"candidate_selector", "DFlash2"},
    {"_conv", "DFlash2"},
};

std::string canonical_name(std::string name) {
  if (name.starts_with("model.")) name = name.substr(6);
  if (name.starts_with("midlayer.")) name = "layers.0." + name.substr(9);
  if (name == "encoder.fc.weight") return "fc.weight";
  if (name == "encoder.output_norm_enc.weight") return "hidden_norm.weight";
  return name;
}

void refuse_foreign(const fs::path& folder, const std::string& name) {
  for (const Foreign& foreign : kForeign) {
    if (name.find(foreign.part) != std::string::npos) {
      fail(
          "{}: {}: {} is not implemented\n  hint: this program runs plain DFlash drafters with the "
          "target's tables",
          folder.string(), name, foreign.feature);
    }
  }
}

// F = taps * the target's hidden size; the file's fc knows better than a config without that key.
int64_t target_hidden_size(const fs::path& folder, const DraftSpec& spec,
                           const io::TensorView& fc) {
  const auto n = static_cast<int64_t>(spec.taps.size());
  if (fc.shape.size() != 2 || fc.shape[1] < n || fc.shape[1] % n != 0) {
    fail("{}: fc.weight: expected [{}, {} taps * target's hidden size], got [{}]", folder.string(),
         spec.hidden_size, n, fmt::join(fc.shape, ", "));
  }
  return fc.shape[1] / n;
}

std::vector<int64_t> read_draft_ids(const fs::path& folder, const io::Checkpoint& file,
                                    const Json& config) {
  const io::TensorView* view = file.find("draft_ids");
  const auto own = config.find("dflash_cpp");
  const auto size = own == config.end() ? Json() : own->value("draft_vocab_size", Json());
  if (!view && size.is_null()) return {};
  const int64_t found = view ? view->numel() : 0;
  if (!view || view->dtype != io::Dtype::kI64 || view->shape.size() != 1 || size != found) {
    fail("{}: draft_ids: expected an int64 tensor of dflash_cpp.draft_vocab_size {} ids, got {}",
         folder.string(), size.dump(), view ? fmt::format("{} values", found) : "none");
  }
  std::vector<int64_t> ids(static_cast<size_t>(found));
  std::memcpy(ids.data(), view->bytes.data(), view->bytes.size());
  return ids;
}

struct Opened {
  DraftSpec spec;
  std::shared_ptr<const io::Checkpoint> file;
};

Opened open_folder(const fs::path& folder, int64_t target_num_layers) {
  const fs::path path = folder / "config.json";
  const Json config = read_json(path);
  Opened opened{parse_zlab_config(config, path.string(), target_num_layers),
                io::Checkpoint::open(folder)};
  DraftSpec& spec = opened.spec;
  for (const io::TensorView& view : opened.file->tensors()) {
    const std::string name = canonical_name(view.name);
    refuse_foreign(folder, name);
    if (name == "fc.weight") spec.target_hidden_size = target_hidden_size(folder, spec, view);
  }
  spec.draft_ids = read_draft_ids(folder, *opened.file, config);
  check_spec(spec);
  return opened;
}

}  // namespace

DraftSpec read_zlab_config(const fs::path& folder, int64_t target_num_layers) {
  return open_folder(folder, target_num_layers).spec;
}

std::shared_ptr<Drafter> load_zlab(const fs::path& folder, nn::Compute compute) {
  const Opened opened = open_folder(folder, 0);
  std::map<std::string, at::Tensor> weights;
  for (const io::TensorView& view : opened.file->tensors()) {
    if (view.name == "draft_ids") continue;
    const std::string name = canonical_name(view.name);
    const bool is_float = view.dtype == io::Dtype::kF32 || view.dtype == io::Dtype::kBF16 ||
                          view.dtype == io::Dtype::kF16;
    if (!is_float) {
      fail("{}: {}: expected F32, BF16 or F16, got {}", folder.string(), view.name,
           io::dtype_name(view.dtype));
    }
    // A copy of our own: the file is mapped read-only, weights are trained in place.
    const at::Tensor tensor =
        nn::to_tensor(view, opened.file).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    if (!weights.emplace(name, tensor).second) {
      fail("{}: {}: expected one tensor of this name, got two spellings of it", folder.string(),
           name);
    }
  }
  auto drafter = Drafter::from_weights(opened.spec, compute, weights);
  drafter->pack();
  return drafter;
}

}  // namespace dflash::draft
