#include "target/random.h"

#include "base/rng.h"
#include "target/transformer.h"
#include "target/transformer_weights.h"

namespace dflash::target {
namespace {

struct Spread {
  double mean = 0, deviation = 1;
};

/// Norms near one, products that keep the size of their input, embeddings of size one, delta nets
/// that forget at different speeds.
Spread spread_of(const TransformerConfig& config, const WeightSpec& spec) {
  const std::string& name = spec.name;
  if (name.find("norm.weight") != std::string::npos) {
    const bool centred = config.zero_centred_norms && !name.ends_with("linear_attn.norm.weight");
    return {.mean = centred ? 0.0 : 1.0, .deviation = 0.1};
  }
  if (name.ends_with(".bias") || name.ends_with("dt_bias")) return {.deviation = 0.3};
  if (name.ends_with("A_log")) return {.mean = -1};
  if (name.ends_with("conv1d.weight")) return {.deviation = 0.5};
  if (name == "embed_tokens.weight") return {};
  return {.deviation = 1.0 / std::sqrt(static_cast<double>(spec.shape.back()))};
}

TransformerConfig with_experts(TransformerConfig config) {
  config.family += "_moe";
  config.moe = {
      .num_experts = 6, .experts_per_token = 2, .expert_size = 16, .norm_topk_prob = true};
  config.moe_blocks.assign(static_cast<size_t>(config.num_layers), true);
  return config;
}

}  // namespace

TransformerConfig tiny_llama_config() {
  TransformerConfig config;
  config.family = "llama";
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 96;
  config.max_positions = 512;
  config.eos_ids = {2};
  return config;
}

TransformerConfig tiny_qwen3_config() {
  TransformerConfig config = tiny_llama_config();
  config.family = "qwen3";
  config.qk_norm = true;
  return config;
}

TransformerConfig tiny_qwen3_moe_config() {
  return with_experts(tiny_qwen3_config());
}

TransformerConfig tiny_qwen35_config() {
  TransformerConfig config = tiny_qwen3_config();
  config.family = "qwen3_5";
  config.num_layers = 4;
  config.output_gate = config.zero_centred_norms = true;
  config.rope.rotary_dim = 4;
  config.mixers = {Mixer::kDelta, Mixer::kDelta, Mixer::kDelta, Mixer::kAttention};
  config.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 8, .conv_taps = 4};
  return config;
}

TransformerConfig tiny_qwen35_moe_config() {
  TransformerConfig config = with_experts(tiny_qwen35_config());
  config.moe.shared_expert_size = 24;
  return config;
}

std::map<std::string, at::Tensor> random_weights(const TransformerConfig& config, uint64_t seed) {
  std::map<std::string, at::Tensor> weights;
  uint64_t number = 0;
  for (const WeightSpec& spec : transformer_specs(config)) {
    const Spread spread = spread_of(config, spec);
    at::Tensor values = at::empty(spec.shape, at::kFloat);
    float* out = values.mutable_data_ptr<float>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      const double draw = normal01({seed, number, static_cast<uint64_t>(i)});
      out[i] = static_cast<float>(spread.mean + spread.deviation * draw);
    }
    weights.emplace(spec.name, values);
    ++number;
  }
  return weights;
}

std::shared_ptr<const Target> make_target(const TransformerConfig& config,
                                          std::map<std::string, at::Tensor> weights,
                                          nn::Compute compute) {
  return std::make_shared<TransformerTarget>(config, memory_weights(std::move(weights)), compute);
}

std::shared_ptr<const Target> make_random_target(const TransformerConfig& config, uint64_t seed,
                                                 nn::Compute compute) {
  return make_target(config, random_weights(config, seed), compute);
}

std::shared_ptr<const Target> make_random_llama(const TransformerConfig& config, uint64_t seed,
                                                nn::Compute compute) {
  return make_random_target(config, seed, compute);
}

}  // namespace dflash::target
