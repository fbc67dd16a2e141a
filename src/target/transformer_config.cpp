#include "target/transformer_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace dflash::target {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;
constexpr int64_t kMostLayers = 1 << 14;  // lists of layers are made before tensors are looked at

struct Size {
  const char* name;
  int64_t value;
};

void check_sizes(const std::vector<Size>& sizes, const std::string& where) {
  for (const auto& [name, value] : sizes) {
    if (value < 1 || value >= kLimit) {
      fail("model config: {}: {}: expected 1 to 2^31, got {}", where, name, value);
    }
  }
}

void check_delta(const nn::DeltaShape& delta, const std::string& where) {
  check_sizes({{"linear key heads", delta.key_heads},
               {"linear value heads", delta.value_heads},
               {"linear key head dimension", delta.key_dim},
               {"linear value head dimension", delta.value_dim}},
              where);
  check_sizes({{"linear key heads times dimension", delta.qk_width()},
               {"linear value heads times dimension", delta.value_width()}},
              where);
  if (delta.value_heads % delta.key_heads != 0) {
    fail("model config: {}: linear value heads: expected a multiple of {} key heads, got {}", where,
         delta.key_heads, delta.value_heads);
  }
  if (delta.conv_taps < 2 || delta.conv_taps > 64) {
    fail("model config: {}: linear_conv_kernel_dim: expected 2 to 64, got {}", where,
         delta.conv_taps);
  }
}

void check_moe(const MoeConfig& moe, const std::string& where) {
  check_sizes({{"number of experts", moe.num_experts},
               {"experts a token", moe.experts_per_token},
               {"size of an expert", moe.expert_size}},
              where);
  if (moe.experts_per_token > moe.num_experts) {
    fail("model config: {}: experts a token: expected at most the {} experts, got {}", where,
         moe.num_experts, moe.experts_per_token);
  }
  if (moe.shared_expert_size < 0 || moe.shared_expert_size >= kLimit) {
    fail("model config: {}: size of the shared expert: expected 0 to 2^31, got {}", where,
         moe.shared_expert_size);
  }
}

template <typename T>
void check_length(const std::vector<T>& list, int64_t layers, const char* name,
                  const std::string& where) {
  if (list.empty() || static_cast<int64_t>(list.size()) == layers) return;
  fail("model config: {}: {}: expected one for each of {} layers, got {}", where, name, layers,
       list.size());
}

}  // namespace

bool TransformerConfig::has_delta() const {
  return std::find(mixers.begin(), mixers.end(), Mixer::kDelta) != mixers.end();
}

bool TransformerConfig::has_moe() const {
  return std::find(moe_blocks.begin(), moe_blocks.end(), true) != moe_blocks.end();
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

void check_num_layers(int64_t layers, const std::string& where) {
  if (layers >= 1 && layers <= kMostLayers) return;
  fail("model config: {}: number of layers: expected 1 to {}, got {}", where, kMostLayers, layers);
}

std::string describe(const TransformerConfig& config) {
  const nn::RopeConfig& rope = config.rope;
  std::string text = fmt::format(
      "{} {:.9g} {:.9g} {:.9g} {:.9g} {:.9g}", rope.scaling, rope.factor, rope.low_freq_factor,
      rope.high_freq_factor, rope.original_max_positions, fmt::join(rope.frequency_factors, " "));
  if (rope.scaling == "yarn") {
    text += fmt::format(" yarn {:.9g} {:.9g} {} {:.9g}", rope.beta_fast, rope.beta_slow,
                        rope.truncate, rope.attention_factor);
  }
  if (rope.rotary_dim) text += fmt::format(" rotary {}", rope.rotary_dim);
  if (!config.windows.empty()) text += fmt::format(" windows {}", fmt::join(config.windows, " "));
  if (config.has_delta()) {
    text += fmt::format(" delta {} {}:", config.delta.key_heads, config.delta.value_heads);
    for (const Mixer mixer : config.mixers) text += mixer == Mixer::kDelta ? 'd' : 'a';
  }
  if (config.has_moe()) {
    text += fmt::format(" moe {} {}", config.moe.experts_per_token, config.moe.norm_topk_prob);
  }
  return text;
}

void check_config(const TransformerConfig& config, const std::string& where) {
  check_sizes({{"hidden size", config.hidden_size},
               {"number of heads", config.num_heads},
               {"number of kv heads", config.num_kv_heads},
               {"head dimension", config.head_dim},
               {"vocabulary size", config.vocab_size},
               {"longest context", config.max_positions}},
              where);
  check_sizes({{"heads times head dimension", config.q_rows()}}, where);
  check_num_layers(config.num_layers, where);
  check_length(config.mixers, config.num_layers, "layer_types", where);
  check_length(config.windows, config.num_layers, "windows", where);
  check_length(config.moe_blocks, config.num_layers, "kinds of MLP", where);
  bool any_dense = false;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    any_dense = any_dense || !config.is_moe(layer);
  }
  if (any_dense) check_sizes({{"intermediate size", config.intermediate_size}}, where);
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
  if (config.has_delta()) check_delta(config.delta, where);
  if (config.has_moe()) check_moe(config.moe, where);
}

}  // namespace dflash::target
