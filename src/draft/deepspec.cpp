#include "draft/deepspec.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "draft/zlab.h"
#include "nn/tensor_io.h"

namespace dflash::draft {

bool is_deepspec_config(const Json& config) {
  const auto found = config.find("architectures");
  return found != config.end() && *found == Json::array({"Qwen3DSparkModel"});
}

std::vector<std::string> deepspec_limits(const Drafter& drafter) {
  const DraftSpec& spec = drafter.spec();
  std::vector<std::string> limits;
  const auto add = [&](bool applies, const char* what) {
    if (applies) limits.emplace_back(what);
  };
  add(spec.rule.slot_shift == 0, "slots that predict their own position (theirs are anchor-first)");
  add(!spec.draft_ids.empty(), "a reduced vocabulary");
  add(std::any_of(spec.rule.layers.begin(), spec.rule.layers.end(),
                  [](const block::LayerRule& rule) {
                    return rule.window > 0 || rule.in_block == block::InBlock::kCausal;
                  }),
      "windows or causal blocks");
  add(spec.hidden_size != spec.target_hidden_size, "a hidden size other than the target's");
  add(!spec.rope.frequency_factors.empty(), "a list of rotary frequency factors");
  return limits;
}

void save_deepspec(const Drafter& drafter, const std::filesystem::path& folder, nn::Compute storage,
                   const OwnTables& tables) {
  const c10::NoGradGuard no_grad;
  const DraftSpec& spec = drafter.spec();
  Json config = zlab_config(spec, storage);
  config.erase("dflash_config");
  config.erase("sample_from_anchor");
  config["architectures"] = Json::array({"Qwen3DSparkModel"});
  config["target_layer_ids"] = spec.taps;
  config["mask_token_id"] = spec.rule.mask_id;
  config["num_anchors"] = 512;
  config["markov_rank"] = 0;
  config["markov_head_type"] = "vanilla";
  config["enable_confidence_head"] = false;
  config["confidence_head_with_markov"] = false;
  const at::ScalarType dtype = storage == nn::Compute::kF32 ? at::kFloat : at::kBFloat16;
  std::map<std::string, at::Tensor> tensors = drafter.parameters();
  tensors["embed_tokens.weight"] = tables.embed_VD;
  tensors["lm_head.weight"] = tables.head_VD;
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().to(dtype);
  make_folder(folder);
  nn::save_tensors(folder / "model.safetensors", tensors);
  write_json(folder / "config.json", config);
}

}  // namespace dflash::draft
