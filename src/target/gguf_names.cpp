#include "target/gguf_names.h"

#include <charconv>

#include "base/error.h"
#include "target/transformer_weights.h"

namespace dflash::target {
namespace {

struct NamePair {
  const char* gguf;
  const char* canonical;
};

constexpr NamePair kGlobalNames[] = {{"token_embd.weight", "embed_tokens.weight"},
                                     {"output_norm.weight", "norm.weight"},
                                     {"output.weight", "lm_head.weight"}};

// Whole tails of blocks.
constexpr NamePair kTails[] = {{"ffn_gate_exps.weight", "mlp.experts.gate_proj"},
                               {"ffn_up_exps.weight", "mlp.experts.up_proj"},
                               {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"},
                               {"ffn_down_exps.weight", "mlp.experts.down_proj"},
                               {"ssm_a", "linear_attn.A_log"},
                               {"ssm_dt.bias", "linear_attn.dt_bias"}};

// Stems of blocks; ".weight" and ".bias" follow.
constexpr NamePair kStems[] = {{"attn_norm", "input_layernorm"},
                               {"ffn_norm", "post_attention_layernorm"},
                               {"post_attention_norm", "post_attention_layernorm"},
                               {"attn_q", "self_attn.q_proj"},
                               {"attn_k", "self_attn.k_proj"},
                               {"attn_v", "self_attn.v_proj"},
                               {"attn_output", "self_attn.o_proj"},
                               {"attn_q_norm", "self_attn.q_norm"},
                               {"attn_k_norm", "self_attn.k_norm"},
                               {"ffn_gate", "mlp.gate_proj"},
                               {"ffn_up", "mlp.up_proj"},
                               {"ffn_down", "mlp.down_proj"},
                               {"ffn_gate_inp", "mlp.gate"},
                               {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                               {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                               {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                               {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                               {"attn_qkv", "linear_attn.in_proj_qkv"},
                               {"attn_gate", "linear_attn.in_proj_z"},
                               {"ssm_alpha", "linear_attn.in_proj_a"},
                               {"ssm_beta", "linear_attn.in_proj_b"},
                               {"ssm_conv1d", "linear_attn.conv1d"},
                               {"ssm_norm", "linear_attn.norm"},
                               {"ssm_out", "linear_attn.out_proj"}};

/// "blk.3.attn_q.weight" -> 3, "attn_q.weight".
struct BlockName {
  int64_t layer = -1;
  std::string tail;
};

std::optional<BlockName> block_name(const std::string& name) {
  constexpr std::string_view kBlock = "blk.";
  const size_t dot = name.find('.', kBlock.size());
  if (!name.starts_with(kBlock) || dot == std::string::npos) return std::nullopt;
  BlockName out;
  const auto number = std::from_chars(name.data() + kBlock.size(), name.data() + dot, out.layer);
  if (number.ptr != name.data() + dot || out.layer < 0) return std::nullopt;
  out.tail = name.substr(dot + 1);
  return out;
}

std::optional<std::string> canonical_name(const std::string& name) {
  for (const NamePair& pair : kGlobalNames) {
    if (name == pair.gguf) return pair.canonical;
  }
  const auto block = block_name(name);
  if (!block) return std::nullopt;
  for (const NamePair& pair : kTails) {
    if (block->tail == pair.gguf) return layer_weight_name(block->layer, pair.canonical);
  }
  const size_t kind = block->tail.rfind('.');
  if (kind == std::string::npos) return std::nullopt;
  const std::string stem = block->tail.substr(0, kind);
  for (const NamePair& pair : kStems) {
    if (stem == pair.gguf) {
      return layer_weight_name(block->layer, pair.canonical) + block->tail.substr(kind);
    }
  }
  return std::nullopt;
}

}  // namespace

GgufNames common_gguf_names(const TransformerConfig& config) {
  const auto left_out = [layers = config.num_layers,
                         extra = config.num_extra_layers](const std::string& name) {
    if (name == "rope_freqs.weight") return true;
    const auto block = block_name(name);
    return block && block->layer >= layers && block->layer < layers + extra;
  };
  return {.canonical = canonical_name,
          .restore = [](const std::string&, at::Tensor values) { return values; },
          .moves_rows = [](const std::string&) { return true; },
          .left_out = left_out};
}

at::Tensor restore_head_rows(const at::Tensor& values, int64_t num_heads) {
  const int64_t half = values.size(0) / num_heads / 2;
  DF_ASSERT(half * 2 * num_heads == values.size(0), "rows={}", values.size(0));
  return values.reshape({num_heads, half, 2, -1}).transpose(1, 2).reshape(values.sizes());
}

}  // namespace dflash::target
