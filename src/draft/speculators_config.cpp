// speculators' config.json <-> DraftSpec. Reading: their config is spelled out in z-lab's keys, so
// that one parser checks and refuses for both; what z-lab cannot say is set afterwards.
#include <set>

#include "base/error.h"
#include "draft/speculators.h"
#include "draft/zlab.h"
#include "draft/zlab_keys.h"

namespace dflash::draft {
namespace {

// A config holds only what differs from these (transformers' Qwen3Config and LlamaConfig).
const Json kQwen3Defaults = {
    {"vocab_size", 151936},
    {"hidden_size", 4096},
    {"intermediate_size", 22016},
    {"num_hidden_layers", 32},
    {"num_attention_heads", 32},
    {"num_key_value_heads", 32},
    {"head_dim", 128},
    {"rms_norm_eps", 1e-6},
    {"attention_bias", false},
    {"use_sliding_window", false},
    {"max_window_layers", 28},
    {"max_position_embeddings", 32768},
    {"rope_theta", 10000.0},
    {"hidden_act", "silu"},
};
const Json kLlamaDefaults = {
    {"vocab_size", 32000},     {"hidden_size", 4096},       {"intermediate_size", 11008},
    {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"rms_norm_eps", 1e-6},
    {"attention_bias", false}, {"rope_theta", 10000.0},     {"max_position_embeddings", 2048},
    {"hidden_act", "silu"},
};
constexpr int64_t kDefaultWindow = 4096;  // Qwen3Config's, when the gate is on

const Json& layer_config(const ZlabKeys& keys) {
  const Json* found = keys.find("transformer_layer_config");
  if (!found) fail("{}: transformer_layer_config: expected an object, got none", keys.name());
  if (!found->is_object()) keys.refuse("transformer_layer_config", "an object", *found);
  return *found;
}

bool has_theta(const Json& layers) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto found = layers.find(key);
    if (found == layers.end() || !found->is_object()) continue;
    if (found->dump().find("\"rope_theta\"") != std::string::npos) return true;
  }
  return layers.contains("rope_theta");
}

Json with_defaults(const ZlabKeys& keys, const Json& layers) {
  const ZlabKeys own(layers, keys.name());
  const std::string family = own.text("model_type").value_or("qwen3");
  if (family != "qwen3" && family != "llama") {
    keys.refuse("transformer_layer_config.model_type", "qwen3 or llama", family);
  }
  Json flat = family == "llama" ? kLlamaDefaults : kQwen3Defaults;
  if (has_theta(layers)) flat.erase("rope_theta");
  for (const auto& [key, value] : layers.items()) {
    if (!value.is_null()) flat[key] = value;
  }
  flat["model_type"] = "qwen3";
  flat.erase("architectures");
  // Only Qwen3's class drops the window when use_sliding_window is off.
  if (family == "llama") flat["use_sliding_window"] = flat.contains("sliding_window");
  if (own.flag("use_sliding_window", false) && !flat.contains("sliding_window")) {
    flat["sliding_window"] = kDefaultWindow;
  }
  return flat;
}

void check_kind(const ZlabKeys& keys) {
  const std::string kind = keys.text("speculators_model_type").value_or("none");
  if (kind == "dspark" || kind == "dflash2") {
    keys.not_implemented("speculators_model_type", kind == "dspark" ? "DSpark" : "DFlash2");
  }
  if (kind != "dflash") keys.refuse("speculators_model_type", "dflash", kind);
}

std::vector<int64_t> taps_of(const ZlabKeys& keys) {
  auto ids = keys.integers("aux_hidden_state_layer_ids");
  if (!ids) {
    fail(
        "{}: aux_hidden_state_layer_ids: expected a list of layers, got none\n  hint: which layers "
        "of the target feed the drafter cannot be guessed",
        keys.name());
  }
  for (int64_t& id : *ids) --id;
  return *ids;
}

}  // namespace

DraftSpec parse_speculators_config(const Json& config, const std::string& name) {
  const ZlabKeys keys(config, name);
  check_kind(keys);
  Json flat = with_defaults(keys, layer_config(keys));
  flat["block_size"] = keys.integer("block_size").value_or(8);
  flat["mask_token_id"] = keys.required_integer("mask_token_id");
  flat["target_layer_ids"] = taps_of(keys);
  flat["sample_from_anchor"] = keys.flag("sample_from_anchor", false);
  if (const auto size = keys.integer("target_hidden_size")) flat["target_hidden_size"] = *size;
  const auto own = config.find("dflash_cpp");
  if (own != config.end()) flat["dflash_cpp"] = *own;
  flat["num_target_layers"] = own == config.end() ? 0 : own->value("target_num_layers", 0);
  DraftSpec spec = parse_zlab_config(flat, name);
  const bool bidirectional = keys.flag("sliding_window_non_causal", false);
  for (block::LayerRule& rule : spec.rule.layers) {
    const bool causal = rule.window > 0 && !bidirectional;
    rule = {rule.window, block::Bound::kAnchor,
            causal ? block::InBlock::kCausal : block::InBlock::kBidirectional};
    if (rule.window == 0) rule.bound = block::Bound::kQuery;  // no window, nothing to count
  }
  return spec;
}

Json speculators_config(const DraftSpec& spec, nn::Compute storage, const Verifier& verifier) {
  Json layers = zlab_config(spec, storage);
  for (const char* key : {"architectures", "dflash_config", "dflash_cpp", "block_size",
                          "num_target_layers", "is_causal", "sample_from_anchor"}) {
    layers.erase(key);
  }
  std::vector<int64_t> ids;
  for (const int64_t tap : spec.taps) ids.push_back(tap + 1);
  bool bidirectional = false;
  for (const block::LayerRule& rule : spec.rule.layers) {
    bidirectional =
        bidirectional || (rule.window > 0 && rule.in_block == block::InBlock::kBidirectional);
  }
  const auto size =
      spec.draft_ids.empty() ? spec.vocab_size : static_cast<int64_t>(spec.draft_ids.size());
  const Json proposal = {{"proposal_type", "greedy"},
                         {"speculative_tokens", spec.rule.block_size - 1 + spec.rule.slot_shift},
                         {"verifier_accept_k", 1},
                         {"accept_tolerance", 0.0}};
  return {
      {"architectures", Json::array({"DFlashDraftModel"})},
      {"speculators_model_type", "dflash"},
      {"speculators_version", "0.9.0"},
      {"dtype", storage == nn::Compute::kF32 ? "float32" : "bfloat16"},
      {"transformer_layer_config", layers},
      {"draft_vocab_size", size},
      {"block_size", spec.rule.block_size},
      {"aux_hidden_state_layer_ids", ids},
      {"mask_token_id", spec.rule.mask_id},
      {"target_hidden_size", nullptr},
      {"sliding_window_non_causal", bidirectional},
      {"sample_from_anchor", spec.rule.slot_shift == 1},
      {"tie_word_embeddings", false},
      {"speculators_config",
       {{"algorithm", "dflash"},
        {"default_proposal_method", "greedy"},
        {"proposal_methods", Json::array({proposal})},
        {"verifier",
         {{"name_or_path", verifier.name_or_path}, {"architectures", verifier.architectures}}}}},
      {"dflash_cpp",
       {{"format", 1},
        {"target_hidden_size", spec.target_hidden_size},
        {"target_num_layers", spec.target_num_layers},
        {"target_fingerprint", spec.target_fingerprint},
        {"tokenizer_fingerprint", spec.tokenizer_fingerprint}}}};
}

}  // namespace dflash::draft
