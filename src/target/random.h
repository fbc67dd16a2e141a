// Small random targets in memory, for tests and measurements of anything that needs a target.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "nn/compute.h"
#include "target/target.h"
#include "target/transformer_config.h"

namespace dflash::target {

/// 2 layers, D 32, I 48, 4 heads over 2 kv heads of 8, vocabulary 96, 512 positions, untied.
TransformerConfig tiny_llama_config();
/// The same sizes with norms of q and k.
TransformerConfig tiny_qwen3_config();
/// And with 6 experts of 16, of which a token visits 2.
TransformerConfig tiny_qwen3_moe_config();
/// 4 layers, the last one attention: 2 key and 4 value heads of 8, half of each head rotated.
TransformerConfig tiny_qwen35_config();
/// And with experts as above, and a shared one of 24.
TransformerConfig tiny_qwen35_moe_config();

/// Weights drawn by (seed, tensor, element), scaled so that logits differ clearly between rows.
/// The same on every machine.
std::shared_ptr<const Target> make_random_target(const TransformerConfig& config, uint64_t seed,
                                                 nn::Compute compute = nn::Compute::kF32);
std::shared_ptr<const Target> make_random_llama(const TransformerConfig& config, uint64_t seed,
                                                nn::Compute compute = nn::Compute::kF32);

/// Canonical name -> values (target/weights.h), for tests that change some of them.
std::map<std::string, at::Tensor> random_weights(const TransformerConfig& config, uint64_t seed);
std::shared_ptr<const Target> make_target(const TransformerConfig& config,
                                          std::map<std::string, at::Tensor> weights,
                                          nn::Compute compute);

}  // namespace dflash::target
