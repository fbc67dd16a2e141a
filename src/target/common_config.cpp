#include "target/common_config.h"

#include "base/error.h"

namespace dflash::target {
namespace {

std::vector<int64_t> gguf_eos(const io::GgufFile& file) {
  std::set<int64_t> ids;
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const std::string full = std::string("tokenizer.ggml.") + key;
    if (file.has(full)) ids.insert(file.integer(full));
  }
  return {ids.begin(), ids.end()};
}

int64_t head_dim_or(const FamilyTraits& traits, const TargetConfig& config,
                    const std::string& where) {
  return traits.head_dim ? traits.head_dim : derived_head_dim(config, where);
}

int64_t gguf_head_dim(const io::GgufFile& file, const std::string& prefix,
                      const FamilyTraits& traits, const TargetConfig& config) {
  const std::string where = file.path().string(), key = prefix + ".attention.key_length";
  const int64_t dim = file.has(key) ? file.integer(key) : head_dim_or(traits, config, where);
  const int64_t values = file.integer(prefix + ".attention.value_length", dim);
  if (values != dim) {
    fail("model config: {}: {}.attention.value_length: expected key_length {}, got {}", where,
         prefix, dim, values);
  }
  return dim;
}

RopeRules rope_rules(const FamilyTraits& traits, int64_t head_dim) {
  RopeRules rules = traits.rope;
  rules.head_dim = head_dim;
  return rules;
}

}  // namespace

void require_zero(const io::GgufFile& file, const std::string& key) {
  const int64_t value = file.integer(key, 0);
  if (value == 0) return;
  fail("model config: {}: {}: expected 0 for this family, got {}", file.path().string(), key,
       value);
}

MoeConfig read_gguf_moe(const io::GgufFile& file, const std::string& prefix) {
  return {.num_experts = file.integer(prefix + ".expert_count"),
          .experts_per_token = file.integer(prefix + ".expert_used_count"),
          .expert_size = file.integer(prefix + ".expert_feed_forward_length"),
          .shared_expert_size = file.integer(prefix + ".expert_shared_feed_forward_length", 0),
          .norm_topk_prob = true};
}

TransformerConfig read_common(const ConfigReader& config, const FamilyTraits& traits) {
  TransformerConfig out;
  out.family = traits.family;
  out.hidden_size = config.integer("hidden_size");
  out.intermediate_size = config.integer("intermediate_size", 0);
  out.num_layers = config.integer("num_hidden_layers");
  check_num_layers(out.num_layers, config.where());
  out.num_heads = config.integer("num_attention_heads");
  out.num_kv_heads = config.integer("num_key_value_heads", out.num_heads);
  out.head_dim = config.has("head_dim") ? config.integer("head_dim")
                                        : head_dim_or(traits, out, config.where());
  out.vocab_size = config.integer("vocab_size");
  out.max_positions = config.integer("max_position_embeddings");
  out.rms_norm_eps = config.number("rms_norm_eps");
  out.attention_bias = config.boolean("attention_bias", false);
  out.tied_embeddings = config.flag_at_any_level("tie_word_embeddings");
  out.eos_ids = config.ids("eos_token_id");
  out.rope = read_rope(config, rope_rules(traits, out.head_dim));
  out.rope_theta = out.rope.theta;
  const std::string activation = config.string("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fail("model config: {}: hidden_act: expected silu, got {}", config.where(), activation);
  }
  return out;
}

TransformerConfig read_common(const io::GgufFile& file, const std::string& prefix,
                              const FamilyTraits& traits) {
  TransformerConfig out;
  out.family = traits.family;
  out.hidden_size = file.integer(prefix + ".embedding_length");
  out.intermediate_size = file.integer(prefix + ".feed_forward_length", 0);
  out.num_extra_layers = file.integer(prefix + ".nextn_predict_layers", 0);
  const int64_t blocks = file.integer(prefix + ".block_count");
  check_num_layers(blocks, file.path().string());
  if (out.num_extra_layers < 0 || out.num_extra_layers >= blocks) {
    fail("model config: {}: {}.nextn_predict_layers: expected fewer than {} blocks, got {}",
         file.path().string(), prefix, blocks, out.num_extra_layers);
  }
  out.num_layers = blocks - out.num_extra_layers;
  out.num_heads = file.integer(prefix + ".attention.head_count");
  out.num_kv_heads = file.integer(prefix + ".attention.head_count_kv", out.num_heads);
  out.head_dim = gguf_head_dim(file, prefix, traits, out);
  const auto& table_shape = file.get("token_embd.weight").shape;
  out.vocab_size = file.integer(prefix + ".vocab_size", table_shape.empty() ? 0 : table_shape[0]);
  out.max_positions = file.integer(prefix + ".context_length");
  out.rms_norm_eps = file.number(prefix + ".attention.layer_norm_rms_epsilon");
  require_zero(file, prefix + ".attention.sliding_window");
  out.eos_ids = gguf_eos(file);
  out.tied_embeddings = file.find("output.weight") == nullptr;
  out.attention_bias = file.find("blk.0.attn_q.bias") != nullptr;
  out.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  out.rope = read_rope(file, prefix, rope_rules(traits, out.head_dim));
  out.rope_theta = out.rope.theta;
  return out;
}

}  // namespace dflash::target
