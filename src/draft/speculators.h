// The folder of vllm-project/speculators (config.json + model.safetensors), in and out; MODELS.md
// 4.3, 4.7. Their conventions end here:
//   aux_hidden_state_layer_ids   one more than our taps ("input of layer id")
//   sliding layers               the window is counted from the anchor
//   transformer_layer_config     what differs from the class's defaults
//   d2t                          offsets: target id = i + d2t[i]; t2d marks the same ids
//   lm_head                      only with a reduced vocabulary; its rows in ascending target ids
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "draft/drafter.h"

namespace dflash::draft {

/// Draft ids are read from the weights file beside it.
DraftSpec read_speculators_config(const std::filesystem::path& folder);
/// Ready to decode (packed).
std::shared_ptr<Drafter> load_speculators(const std::filesystem::path& folder, nn::Compute compute);

/// The target as their config names it.
struct Verifier {
  std::string name_or_path;                // where their programs find the target
  std::vector<std::string> architectures;  // ["LlamaForCausalLM"]
};

/// `head_VD`: rows of the drafter's vocabulary, in its order; needed with a reduced vocabulary.
/// Errors: what their config cannot say (speculators_limits).
void save_speculators(const Drafter& drafter, const std::filesystem::path& folder,
                      nn::Compute storage, const Verifier& verifier, const at::Tensor& head_VD);

/// Why a drafter cannot be written in this form; empty: it can.
std::vector<std::string> speculators_limits(const Drafter& drafter);

/// The halves without files. `name` is the file's, for errors.
DraftSpec parse_speculators_config(const Json& config, const std::string& name);
Json speculators_config(const DraftSpec& spec, nn::Compute storage, const Verifier& verifier);

}  // namespace dflash::draft
