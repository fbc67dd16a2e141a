// z-lab's drafter folder (config.json + model.safetensors), in and out; all published variants of
// MODELS.md 4.3 are read, what is not implemented is refused by name.
//
// Our own keys live in config.json under "dflash_cpp", so that other programs skip them:
//   format 1              of these keys
//   layers                per layer {window, bound: query|anchor, in_block: bidirectional|causal}
//   target_hidden_size    when it differs from hidden_size, or always
//   target_fingerprint, tokenizer_fingerprint
//   draft_vocab_size      rows of the tensor `draft_ids` (int64, draft id -> target id); absent:
//   all
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/json.h"
#include "draft/drafter.h"

namespace dflash::draft {

/// `target_num_layers`: for the fallback taps when the file has none (0 = unknown). Draft ids are
/// read from the weights file beside it.
DraftSpec read_zlab_config(const std::filesystem::path& folder, int64_t target_num_layers = 0);
/// Ready to decode (packed).
std::shared_ptr<Drafter> load_zlab(const std::filesystem::path& folder, nn::Compute compute);

/// Writes config.json and model.safetensors (f32 or bf16 weights); the config's dtype is the
/// file's.
void save_zlab(const Drafter& drafter, const std::filesystem::path& folder, nn::Compute storage);

/// The two halves without files: config.json -> spec (draft ids left empty; `name` is the file's
/// for errors), and back.
DraftSpec parse_zlab_config(const Json& config, const std::string& name,
                            int64_t target_num_layers = 0);
Json zlab_config(const DraftSpec& spec, nn::Compute storage);

}  // namespace dflash::draft
