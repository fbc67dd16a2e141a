// Settings of a decoder-only transformer, all families in one: a family is a reader that fills
// this in (families.h). MODELS.md 1 to 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/delta.h"
#include "nn/rope.h"
#include "target/target.h"

namespace dflash::target {

/// What mixes tokens in a block.
enum class Mixer { kAttention, kDelta };

/// Mixture of experts in place of a block's MLP.
struct MoeConfig {
  int64_t num_experts = 0, experts_per_token = 0;
  int64_t expert_size = 0;         // inner width of an expert
  int64_t shared_expert_size = 0;  // of the expert that every token visits; 0 = none
  bool norm_topk_prob = false;     // weights of the chosen experts sum to one
};

struct TransformerConfig : TargetConfig {
  bool attention_bias = false;      // q, k, v and o
  bool mlp_bias = false;            // gate, up and down
  bool qk_norm = false;             // q and k of every head are normed before the rotation
  bool output_gate = false;         // q_proj also has a gate for the output of every head
  bool zero_centred_norms = false;  // stored as w - 1, but for the delta net's own norm
  nn::RopeConfig rope;
  std::vector<int64_t> windows;  // one a block: keys that a row sees, its own included; 0 = all.
                                 // Empty: all everywhere
  std::vector<Mixer> mixers;     // one a block; empty: attention everywhere
  nn::DeltaShape delta;
  std::vector<bool> moe_blocks;  // one a block; empty: dense MLPs everywhere
  MoeConfig moe;
  int64_t num_extra_layers = 0;  // blocks after the last that a GGUF file also holds (multi-token
                                 // prediction); not loaded

  int64_t q_rows() const { return num_heads * head_dim; }
  int64_t kv_rows() const { return num_kv_heads * head_dim; }
  Mixer mixer(int64_t layer) const {
    return mixers.empty() ? Mixer::kAttention : mixers[static_cast<size_t>(layer)];
  }
  int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  bool is_moe(int64_t layer) const {
    return !moe_blocks.empty() && moe_blocks[static_cast<size_t>(layer)];
  }
  bool has_delta() const;
  bool has_moe() const;
};

/// Everything above that changes the computation and is not in TargetConfig, for fingerprints.
std::string describe(const TransformerConfig& config);

/// Error naming the first value that is out of range, and `where` it came from.
void check_config(const TransformerConfig& config, const std::string& where);

/// The part of check_config that must come before anything is made for every layer.
void check_num_layers(int64_t layers, const std::string& where);

/// hidden_size / num_heads; Error when that is no integer.
int64_t derived_head_dim(const TargetConfig& config, const std::string& where);

}  // namespace dflash::target
