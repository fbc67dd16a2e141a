#include "target/llama_config.h"

#include <set>

#include "base/error.h"
#include "target/rope_config.h"

namespace dflash::target {
namespace {

constexpr double kDefaultTheta = 10000.0;
constexpr int64_t kLimit = int64_t{1} << 31;

void require_zero(const io::GgufFile& file, const std::string& key) {
  const int64_t value = file.integer(key, 0);
  if (value != 0) {
    fail("model config: {}: {}: expected 0 for the llama family, got {}", file.path().string(), key,
         value);
  }
}

/// The weights decide about biases and the head: GGUF has no switches for them.
void read_switches(const io::GgufFile& file, LlamaConfig& out) {
  out.tied_embeddings = file.find("output.weight") == nullptr;
  out.attention_bias = file.find("blk.0.attn_q.bias") != nullptr;
  out.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
}

void read_gguf_rope(const io::GgufFile& file, LlamaConfig& out) {
  const std::string where = file.path().string();
  out.rope.theta = file.number("llama.rope.freq_base", kDefaultTheta);
  out.rope_theta = out.rope.theta;
  if (file.has("llama.rope.scaling.type") && file.string("llama.rope.scaling.type") != "none") {
    fail(
        "model config: {}: unknown rope scaling {}\n  hint: known are none and the factors of "
        "rope_freqs.weight",
        where, file.string("llama.rope.scaling.type"));
  }
  if (const io::GgufTensor* freqs = file.find("rope_freqs.weight")) {
    std::vector<float> factors(static_cast<size_t>(freqs->numel()));
    if (freqs->numel() != out.head_dim / 2) {
      fail("model config: {}: rope_freqs.weight: expected {} values, got {}", where,
           out.head_dim / 2, freqs->numel());
    }
    freqs->widen(factors);
    out.rope.frequency_factors.assign(factors.begin(), factors.end());
    for (const double factor : out.rope.frequency_factors) {
      if (!(factor > 0)) fail("model config: {}: rope_freqs.weight: not positive", where);
    }
  }
  const int64_t rotated = file.integer("llama.rope.dimension_count", out.head_dim);
  if (rotated != out.head_dim) {
    fail("model config: {}: llama.rope.dimension_count: expected the head dimension {}, got {}",
         where, out.head_dim, rotated);
  }
}

std::vector<int64_t> gguf_eos(const io::GgufFile& file) {
  std::set<int64_t> ids;
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const std::string full = std::string("tokenizer.ggml.") + key;
    if (file.has(full)) ids.insert(file.integer(full));
  }
  return {ids.begin(), ids.end()};
}

int64_t derived_head_dim(const TargetConfig& config, const std::string& where) {
  if (config.num_heads < 1 || config.hidden_size % config.num_heads != 0) {
    fail(
        "model config: {}: head_dim: expected a value, since hidden_size {} is no multiple of {} "
        "heads",
        where, config.hidden_size, config.num_heads);
  }
  return config.hidden_size / config.num_heads;
}

}  // namespace

LlamaConfig llama_config(const ConfigReader& config) {
  LlamaConfig out;
  out.family = "llama";
  config.string("model_type", "llama");
  out.hidden_size = config.integer("hidden_size");
  out.intermediate_size = config.integer("intermediate_size");
  out.num_layers = config.integer("num_hidden_layers");
  out.num_heads = config.integer("num_attention_heads");
  out.num_kv_heads = config.integer("num_key_value_heads", out.num_heads);
  out.head_dim =
      config.has("head_dim") ? config.integer("head_dim") : derived_head_dim(out, config.where());
  out.vocab_size = config.integer("vocab_size");
  out.max_positions = config.integer("max_position_embeddings");
  out.rms_norm_eps = config.number("rms_norm_eps");
  out.attention_bias = config.boolean("attention_bias", false);
  out.mlp_bias = config.boolean("mlp_bias", false);
  out.tied_embeddings = config.flag_at_any_level("tie_word_embeddings");
  out.eos_ids = config.ids("eos_token_id");
  out.rope = read_rope(config, kDefaultTheta);
  out.rope_theta = out.rope.theta;
  const std::string activation = config.string("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fail("model config: {}: hidden_act: expected silu, got {}", config.where(), activation);
  }
  config.reject_unknown(harmless_keys());
  check_config(out, config.where());
  return out;
}

LlamaConfig llama_config(const io::GgufFile& file) {
  const std::string where = file.path().string();
  LlamaConfig out;
  out.family = "llama";
  out.hidden_size = file.integer("llama.embedding_length");
  out.intermediate_size = file.integer("llama.feed_forward_length");
  out.num_layers = file.integer("llama.block_count");
  out.num_heads = file.integer("llama.attention.head_count");
  out.num_kv_heads = file.integer("llama.attention.head_count_kv", out.num_heads);
  out.head_dim = file.has("llama.attention.key_length") ? file.integer("llama.attention.key_length")
                                                        : derived_head_dim(out, where);
  if (file.integer("llama.attention.value_length", out.head_dim) != out.head_dim) {
    fail("model config: {}: llama.attention.value_length: expected key_length {}, got {}", where,
         out.head_dim, file.integer("llama.attention.value_length"));
  }
  const auto& table_shape = file.get("token_embd.weight").shape;
  out.vocab_size = file.integer("llama.vocab_size", table_shape.empty() ? 0 : table_shape[0]);
  out.max_positions = file.integer("llama.context_length");
  out.rms_norm_eps = file.number("llama.attention.layer_norm_rms_epsilon");
  require_zero(file, "llama.expert_count");
  require_zero(file, "llama.attention.sliding_window");
  out.eos_ids = gguf_eos(file);
  read_switches(file, out);
  read_gguf_rope(file, out);
  check_config(out, where);
  return out;
}

void check_config(const TargetConfig& config, const std::string& where) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"hidden size", config.hidden_size},         {"intermediate size", config.intermediate_size},
      {"number of layers", config.num_layers},     {"number of heads", config.num_heads},
      {"number of kv heads", config.num_kv_heads}, {"head dimension", config.head_dim},
      {"vocabulary size", config.vocab_size},      {"longest context", config.max_positions}};
  for (const auto& [name, value] : sizes) {
    if (value < 1 || value >= kLimit) {
      fail("model config: {}: {}: expected 1 to 2^31, got {}", where, name, value);
    }
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    fail("model config: {}: number of heads: expected a multiple of {} kv heads, got {}", where,
         config.num_kv_heads, config.num_heads);
  }
  if (config.head_dim % 2 != 0) {
    fail("model config: {}: head dimension: expected an even number, got {}", where,
         config.head_dim);
  }
  if (!(config.rms_norm_eps > 0 && config.rms_norm_eps < 1)) {
    fail("model config: {}: rms_norm_eps: expected between 0 and 1, got {}", where,
         config.rms_norm_eps);
  }
}

}  // namespace dflash::target
