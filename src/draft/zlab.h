// z-lab's drafter folder (config.json + model.safetensors), in and out; all published variants of
// MODELS.md 4.3 are read, what is not implemented is refused by name.
#pragma once

#include <filesystem>
#include <memory>

#include "draft/drafter.h"

namespace dflash::draft {

/// `target_num_layers`: for the fallback taps when the file has none (0 = unknown).
DraftSpec read_zlab_config(const std::filesystem::path& folder, int64_t target_num_layers = 0);
std::shared_ptr<Drafter> load_zlab(const std::filesystem::path& folder, nn::Compute compute);

/// Writes config.json and model.safetensors (f32 or bf16 weights); the config's dtype is the
/// file's. Our own keys (draft vocabulary, fingerprints, window bound) live under "dflash_cpp".
void save_zlab(const Drafter& drafter, const std::filesystem::path& folder, nn::Compute storage);

}  // namespace dflash::draft
