// Small random targets in memory, for tests and measurements of anything that needs a target.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "nn/compute.h"
#include "target/llama_config.h"
#include "target/target.h"

namespace dflash::target {

/// 2 layers, D 32, I 48, 4 heads over 2 kv heads of 8, vocabulary 96, 512 positions, untied.
LlamaConfig tiny_llama_config();

/// Weights drawn by (seed, tensor, element), scaled so that logits differ clearly between rows.
/// The same on every machine.
std::shared_ptr<const Target> make_random_llama(const LlamaConfig& config, uint64_t seed,
                                                nn::Compute compute = nn::Compute::kF32);

/// Canonical name -> values (target/weights.h), for tests that change some of them.
std::map<std::string, at::Tensor> random_llama_weights(const LlamaConfig& config, uint64_t seed);
std::shared_ptr<const Target> make_llama(const LlamaConfig& config,
                                         std::map<std::string, at::Tensor> weights,
                                         nn::Compute compute);

}  // namespace dflash::target
