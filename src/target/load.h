// Path -> target. A Hugging Face folder (config.json + safetensors, sharded or not) or a .gguf
// file.
#pragma once

#include <filesystem>
#include <memory>

#include "target/target.h"
#include "target/transformer_config.h"

namespace dflash::target {

struct LoadOptions {
  nn::Compute compute = nn::Compute::kF32;
};

/// Errors: unknown family (lists what is known), unknown rope scaling, missing or misshapen tensors
/// (named), unknown tensors (named).
std::shared_ptr<const Target> load_target(const std::filesystem::path& path,
                                          const LoadOptions& options);

/// Sizes alone, no weights: of a folder (or its config.json) or a .gguf file.
TransformerConfig read_target_config(const std::filesystem::path& path);

}  // namespace dflash::target
