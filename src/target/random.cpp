#include "target/random.h"

#include "base/rng.h"
#include "target/llama.h"
#include "target/llama_weights.h"

namespace dflash::target {
namespace {

struct Spread {
  double mean = 0, deviation = 1;
};

/// Norms near one, products that keep the size of their input, embeddings of size one.
Spread spread_of(const WeightSpec& spec) {
  if (spec.name.find("norm.weight") != std::string::npos) return {.mean = 1, .deviation = 0.1};
  if (spec.name.ends_with(".bias")) return {.deviation = 0.3};
  if (spec.name == "embed_tokens.weight") return {};
  return {.deviation = 1.0 / std::sqrt(static_cast<double>(spec.shape[1]))};
}

}  // namespace

LlamaConfig tiny_llama_config() {
  LlamaConfig config;
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

std::map<std::string, at::Tensor> random_llama_weights(const LlamaConfig& config, uint64_t seed) {
  std::map<std::string, at::Tensor> weights;
  uint64_t number = 0;
  for (const WeightSpec& spec : llama_specs(config)) {
    const Spread spread = spread_of(spec);
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

std::shared_ptr<const Target> make_llama(const LlamaConfig& config,
                                         std::map<std::string, at::Tensor> weights,
                                         nn::Compute compute) {
  return std::make_shared<LlamaTarget>(config, memory_weights(std::move(weights)), compute);
}

std::shared_ptr<const Target> make_random_llama(const LlamaConfig& config, uint64_t seed,
                                                nn::Compute compute) {
  return make_llama(config, random_llama_weights(config, seed), compute);
}

}  // namespace dflash::target
