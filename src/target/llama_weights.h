// The Llama family's tensor table: what a model of a given config must have, and how GGUF spells
// and stores it. MODELS.md 1.2, LIBTORCH.md 7.2.
#pragma once

#include <string>
#include <vector>

#include "target/llama_config.h"
#include "target/weights.h"

namespace dflash::target {

/// Name of a weight of block `layer`: layer_weight_name(3, "mlp.up_proj.weight").
std::string layer_weight_name(int64_t layer, const std::string& tail);

/// Tails and shapes of one block, biases included where the config has them.
std::vector<WeightSpec> llama_layer_specs(const LlamaConfig& config);

/// All weights; "lm_head.weight" only where the config does not tie it.
std::vector<WeightSpec> llama_specs(const LlamaConfig& config);

GgufNames llama_gguf_names(const LlamaConfig& config);

/// Rows of each head from the interleaved order (2f + half) of GGUF to the half-split one
/// (half * E/2 + f). Vectors and matrices.
at::Tensor restore_head_rows(const at::Tensor& values, int64_t num_heads);

}  // namespace dflash::target
