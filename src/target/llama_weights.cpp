#include "target/llama_weights.h"

#include <charconv>

#include "base/error.h"

namespace dflash::target {
namespace {

struct NamePair {
  const char* gguf;
  const char* canonical;
};

constexpr NamePair kGlobalNames[] = {{"token_embd.weight", "embed_tokens.weight"},
                                     {"output_norm.weight", "norm.weight"},
                                     {"output.weight", "lm_head.weight"}};

// Stems; ".weight" and ".bias" follow.
constexpr NamePair kLayerNames[] = {
    {"attn_norm", "input_layernorm"}, {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},   {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},   {"attn_output", "self_attn.o_proj"},
    {"ffn_gate", "mlp.gate_proj"},    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

std::optional<std::string> canonical_name(const std::string& name) {
  for (const NamePair& pair : kGlobalNames) {
    if (name == pair.gguf) return pair.canonical;
  }
  constexpr std::string_view kBlock = "blk.";
  const size_t dot = name.find('.', kBlock.size());
  const size_t kind = name.rfind('.');
  if (!name.starts_with(kBlock) || dot == std::string::npos || kind <= dot) return std::nullopt;
  int64_t layer = -1;
  const auto number = std::from_chars(name.data() + kBlock.size(), name.data() + dot, layer);
  if (number.ptr != name.data() + dot || layer < 0) return std::nullopt;
  const std::string stem = name.substr(dot + 1, kind - dot - 1);
  for (const NamePair& pair : kLayerNames) {
    if (stem == pair.gguf) return layer_weight_name(layer, pair.canonical) + name.substr(kind);
  }
  return std::nullopt;
}

void add_linear(std::vector<WeightSpec>& specs, const std::string& stem, int64_t out, int64_t in,
                bool with_bias) {
  specs.push_back({stem + ".weight", {out, in}});
  if (with_bias) specs.push_back({stem + ".bias", {out}});
}

}  // namespace

std::string layer_weight_name(int64_t layer, const std::string& tail) {
  return fmt::format("layers.{}.{}", layer, tail);
}

std::vector<WeightSpec> llama_layer_specs(const LlamaConfig& config) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  std::vector<WeightSpec> specs = {{"input_layernorm.weight", {hidden}},
                                   {"post_attention_layernorm.weight", {hidden}}};
  const bool bias = config.attention_bias;
  add_linear(specs, "self_attn.q_proj", config.q_rows(), hidden, bias);
  add_linear(specs, "self_attn.k_proj", config.kv_rows(), hidden, bias);
  add_linear(specs, "self_attn.v_proj", config.kv_rows(), hidden, bias);
  add_linear(specs, "self_attn.o_proj", hidden, config.q_rows(), bias);
  add_linear(specs, "mlp.gate_proj", inner, hidden, config.mlp_bias);
  add_linear(specs, "mlp.up_proj", inner, hidden, config.mlp_bias);
  add_linear(specs, "mlp.down_proj", hidden, inner, config.mlp_bias);
  return specs;
}

std::vector<WeightSpec> llama_specs(const LlamaConfig& config) {
  std::vector<WeightSpec> specs = {{"embed_tokens.weight", {config.vocab_size, config.hidden_size}},
                                   {"norm.weight", {config.hidden_size}}};
  if (!config.tied_embeddings) {
    specs.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
  }
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const WeightSpec& spec : llama_layer_specs(config)) {
      specs.push_back({layer_weight_name(layer, spec.name), spec.shape});
    }
  }
  return specs;
}

GgufNames llama_gguf_names(const LlamaConfig& config) {
  const int64_t num_heads = config.num_heads, num_kv_heads = config.num_kv_heads;
  return {.canonical = canonical_name,
          .restore =
              [=](const std::string& name, at::Tensor values) {
                if (name.find(".q_proj.") != std::string::npos) {
                  return restore_head_rows(values, num_heads);
                }
                if (name.find(".k_proj.") != std::string::npos) {
                  return restore_head_rows(values, num_kv_heads);
                }
                return values;
              },
          .consumed = {"rope_freqs.weight"}};
}

at::Tensor restore_head_rows(const at::Tensor& values, int64_t num_heads) {
  const int64_t half = values.size(0) / num_heads / 2;
  DF_ASSERT(half * 2 * num_heads == values.size(0), "rows={}", values.size(0));
  return values.reshape({num_heads, half, 2, -1}).transpose(1, 2).reshape(values.sizes());
}

}  // namespace dflash::target
