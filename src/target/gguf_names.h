// llama.cpp's tensor names as canonical ones, for all families: what the architectures call a
// tensor differs little, and a name that a family does not have is found by the check of its
// tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "target/transformer_config.h"
#include "target/weights.h"

namespace dflash::target {

/// Names only, `restore` is the identity. Left out: "rope_freqs.weight", which the config has taken
/// in, and blocks past the config's last (layers for multi-token prediction).
GgufNames common_gguf_names(const TransformerConfig& config);

/// Rows of each head from the interleaved order (2f + half) of GGUF's llama files to the half-split
/// one (half * E/2 + f). Vectors and matrices.
at::Tensor restore_head_rows(const at::Tensor& values, int64_t num_heads);

}  // namespace dflash::target
