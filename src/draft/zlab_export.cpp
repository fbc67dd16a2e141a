// DraftSpec -> config.json, and the folder that z-lab's loader, vLLM and SGLang read.
#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "draft/zlab.h"
#include "nn/tensor_io.h"

namespace dflash::draft {
namespace {

using block::InBlock;

// The public keys know one window and, for all layers at once, one way inside the block; without
// is_causal a sliding layer is causal and a full one is not.
void write_layer_rules(const DraftSpec& spec, Json& config) {
  int64_t window = 0;
  bool any_causal = false, all_causal = true, usual = true;
  Json types = Json::array(), own = Json::array();
  for (const block::LayerRule& rule : spec.rule.layers) {
    const bool sliding = rule.window > 0, causal = rule.in_block == InBlock::kCausal;
    window = std::max(window, rule.window);
    any_causal = any_causal || causal;
    all_causal = all_causal && causal;
    usual = usual && causal == sliding;
    types.push_back(sliding ? "sliding_attention" : "full_attention");
    own.push_back({{"window", rule.window},
                   {"bound", rule.bound == block::Bound::kQuery ? "query" : "anchor"},
                   {"in_block", causal ? "causal" : "bidirectional"}});
  }
  config["layer_types"] = types;
  config["use_sliding_window"] = window > 0;
  config["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
  config["max_window_layers"] = spec.num_layers;
  if (!usual && any_causal == all_causal) config["is_causal"] = all_causal;
  config["dflash_cpp"]["layers"] = own;
}

// Old programs read rope_theta and rope_scaling, new ones rope_parameters (FAULTS EX-05).
void write_rope(const DraftSpec& spec, Json& config) {
  if (!spec.rope.frequency_factors.empty()) {
    fail(
        "drafter: rotary frequencies: expected default or llama3 scaling, got a list of factors\n  "
        "hint: a GGUF drafter with rope_freqs can only be written as GGUF again");
  }
  Json scaling;
  if (spec.rope.scaling != "default") {
    scaling = {{"rope_type", spec.rope.scaling},
               {"factor", spec.rope.factor},
               {"low_freq_factor", spec.rope.low_freq_factor},
               {"high_freq_factor", spec.rope.high_freq_factor},
               {"original_max_position_embeddings", spec.rope.original_max_positions}};
  }
  config["rope_theta"] = spec.rope.theta;
  config["rope_scaling"] = scaling;
  config["rope_parameters"] = scaling.is_null() ? Json{{"rope_type", "default"}} : scaling;
  config["rope_parameters"]["rope_theta"] = spec.rope.theta;
}

}  // namespace

Json zlab_config(const DraftSpec& spec, nn::Compute storage) {
  check_spec(spec);
  Json config = {{"architectures", Json::array({"DFlashDraftModel"})},
                 {"model_type", "qwen3"},
                 {"hidden_act", "silu"},
                 {"attention_dropout", 0.0},
                 {"tie_word_embeddings", false},
                 {"num_hidden_layers", spec.num_layers},
                 {"hidden_size", spec.hidden_size},
                 {"intermediate_size", spec.intermediate_size},
                 {"num_attention_heads", spec.num_heads},
                 {"num_key_value_heads", spec.num_kv_heads},
                 {"head_dim", spec.head_dim},
                 {"rms_norm_eps", spec.rms_norm_eps},
                 {"attention_bias", spec.attention_bias},
                 {"vocab_size", spec.vocab_size},
                 {"num_target_layers", spec.target_num_layers},
                 {"block_size", spec.rule.block_size},
                 {"dtype", storage == nn::Compute::kF32 ? "float32" : "bfloat16"}};
  if (spec.max_positions > 0) config["max_position_embeddings"] = spec.max_positions;
  config["dflash_config"] = {{"block_size", spec.rule.block_size},
                             {"mask_token_id", spec.rule.mask_id},
                             {"target_layer_ids", spec.taps}};
  if (spec.rule.slot_shift == 1) config["sample_from_anchor"] = true;
  config["dflash_cpp"] = {{"format", 1},
                          {"target_hidden_size", spec.target_hidden_size},
                          {"target_fingerprint", spec.target_fingerprint},
                          {"tokenizer_fingerprint", spec.tokenizer_fingerprint}};
  if (!spec.draft_ids.empty()) config["dflash_cpp"]["draft_vocab_size"] = spec.draft_ids.size();
  write_rope(spec, config);
  write_layer_rules(spec, config);
  return config;
}

void save_zlab(const Drafter& drafter, const std::filesystem::path& folder, nn::Compute storage) {
  const c10::NoGradGuard no_grad;
  const Json config = zlab_config(drafter.spec(), storage);
  make_folder(folder);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : drafter.parameters()) {
    tensors[name] = tensor.detach().to(storage == nn::Compute::kF32 ? at::kFloat : at::kBFloat16);
  }
  const OwnTables& own = drafter.own_tables();
  if (own.embed_VD.defined()) tensors["embed_tokens.weight"] = own.embed_VD;
  if (own.head_VD.defined()) tensors["lm_head.weight"] = own.head_VD;
  if (!drafter.spec().draft_ids.empty()) {
    tensors["draft_ids"] = at::tensor(drafter.spec().draft_ids, at::kLong);
  }
  nn::save_tensors(folder / "model.safetensors", tensors);
  write_json(folder / "config.json", config);
}

}  // namespace dflash::draft
