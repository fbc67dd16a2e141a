// The model families: each reads its config (Hugging Face or GGUF), says how its GGUF names and
// layouts become canonical ones, and builds a TransformerTarget.
#pragma once

#include <filesystem>
#include <memory>

#include "io/gguf.h"
#include "target/config_reader.h"
#include "target/target.h"
#include "target/transformer_config.h"

namespace dflash::target {

using TargetPtr = std::shared_ptr<const Target>;
using GgufPtr = std::shared_ptr<const io::GgufFile>;

/// Llama 2 and 3.x, SmolLM2 (llama.cpp). MODELS.md 1.
TransformerConfig llama_config(const ConfigReader& config);
TransformerConfig llama_config(const io::GgufFile& file);
TargetPtr load_llama_folder(const std::filesystem::path& folder, const ConfigReader& config,
                            nn::Compute compute);
TargetPtr load_llama_gguf(const GgufPtr& file, nn::Compute compute);

/// Qwen3, dense and mixture of experts (qwen3.cpp). MODELS.md 2.
TransformerConfig qwen3_config(const ConfigReader& config);
TransformerConfig qwen3_config(const io::GgufFile& file);
TargetPtr load_qwen3_folder(const std::filesystem::path& folder, const ConfigReader& config,
                            nn::Compute compute);
TargetPtr load_qwen3_gguf(const GgufPtr& file, nn::Compute compute);

/// Qwen3.5 and 3.6, dense and mixture of experts (qwen35.cpp): gated delta net and gated attention.
/// The text part of multi-modal checkpoints. MODELS.md 3.
TransformerConfig qwen35_config(const ConfigReader& config);
TransformerConfig qwen35_config(const io::GgufFile& file);
TargetPtr load_qwen35_folder(const std::filesystem::path& folder, const ConfigReader& config,
                             nn::Compute compute);
TargetPtr load_qwen35_gguf(const GgufPtr& file, nn::Compute compute);

}  // namespace dflash::target
