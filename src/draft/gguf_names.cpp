#include <array>
#include <utility>

#include "draft/gguf_drafter.h"

namespace dflash::draft {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;  // z-lab's name, llama.cpp's

constexpr std::array<Pair, 6> kRoot = {{{"fc.weight", "fc.weight"},
                                        {"hidden_norm.weight", "enc.output_norm.weight"},
                                        {"norm.weight", "output_norm.weight"},
                                        {"embed_tokens.weight", "token_embd.weight"},
                                        {"lm_head.weight", "output.weight"},
                                        {"draft_ids", "d2t"}}};
constexpr std::array<Pair, 11> kLayer = {{{"input_layernorm.weight", "attn_norm.weight"},
                                          {"post_attention_layernorm.weight", "ffn_norm.weight"},
                                          {"self_attn.q_proj.weight", "attn_q.weight"},
                                          {"self_attn.k_proj.weight", "attn_k.weight"},
                                          {"self_attn.v_proj.weight", "attn_v.weight"},
                                          {"self_attn.o_proj.weight", "attn_output.weight"},
                                          {"self_attn.q_norm.weight", "attn_q_norm.weight"},
                                          {"self_attn.k_norm.weight", "attn_k_norm.weight"},
                                          {"mlp.gate_proj.weight", "ffn_gate.weight"},
                                          {"mlp.up_proj.weight", "ffn_up.weight"},
                                          {"mlp.down_proj.weight", "ffn_down.weight"}}};

// "layers.3.mlp..." with prefixes "layers." and "blk.": number and rest swapped by the tables.
std::string translate(const std::string& name, bool to_gguf) {
  const auto from = [&](const Pair& pair) { return to_gguf ? pair.first : pair.second; };
  const auto to = [&](const Pair& pair) { return to_gguf ? pair.second : pair.first; };
  for (const Pair& pair : kRoot) {
    if (name == from(pair)) return std::string(to(pair));
  }
  const std::string prefix = to_gguf ? "layers." : "blk.";
  if (!name.starts_with(prefix)) return name;
  const size_t dot = name.find('.', prefix.size());
  if (dot == std::string::npos) return name;
  const std::string number = name.substr(prefix.size(), dot - prefix.size());
  for (const Pair& pair : kLayer) {
    if (name.compare(dot + 1, std::string::npos, from(pair)) == 0) {
      return (to_gguf ? "blk." : "layers.") + number + "." + std::string(to(pair));
    }
  }
  return name;
}

}  // namespace

std::string gguf_name(const std::string& name) {
  return translate(name, true);
}

std::string name_from_gguf(const std::string& name) {
  return translate(name, false);
}

}  // namespace dflash::draft
