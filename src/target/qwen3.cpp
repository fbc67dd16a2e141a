// Qwen3: like Llama, with norms of q and k; dense, or with a mixture of experts. MODELS.md 2;
// agrees with transformers' Qwen3ForCausalLM and Qwen3MoeForCausalLM (tests/golden/make_target.py).
#include "base/error.h"
#include "target/common_config.h"
#include "target/families.h"
#include "target/gguf_names.h"
#include "target/layer_types.h"
#include "target/transformer.h"

namespace dflash::target {
namespace {

/// head_dim never follows from the hidden size: the family's default is 128.
FamilyTraits traits(const std::string& family) {
  return {.family = family, .head_dim = 128};
}

/// The file's windows count only under use_sliding_window. Without a list, blocks from
/// max_window_layers on have one (dense), or all (experts).
std::vector<int64_t> read_windows(const ConfigReader& config, int64_t layers, bool moe) {
  const bool used = config.boolean("use_sliding_window", false);
  const int64_t window = config.has("sliding_window") ? config.integer("sliding_window") : 0;
  const int64_t first = moe ? 0 : config.integer("max_window_layers", 28);
  const auto listed = read_layer_types(config, layers, {"full_attention", "sliding_attention"});
  if (!used || window == 0) {
    if (std::count(listed.begin(), listed.end(), "sliding_attention") && used) {
      fail("model config: {}: layer_types names sliding_attention but there is no sliding_window",
           config.where());
    }
    return {};
  }
  if (window < 1) {
    fail("model config: {}: sliding_window: expected >= 1, got {}", config.where(), window);
  }
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool slides =
        listed.empty() ? layer >= first : listed[static_cast<size_t>(layer)] == "sliding_attention";
    windows.push_back(slides ? window : 0);
  }
  return windows;
}

void read_moe(const ConfigReader& config, TransformerConfig& out) {
  MoeConfig& moe = out.moe;
  moe.num_experts = config.has("num_local_experts") ? config.integer("num_local_experts")
                                                    : config.integer("num_experts");
  moe.experts_per_token = config.integer("num_experts_per_tok");
  moe.expert_size = config.integer("moe_intermediate_size");
  moe.norm_topk_prob = config.boolean("norm_topk_prob", false);
  const int64_t step = config.integer("decoder_sparse_step", 1);
  const std::vector<int64_t> dense = config.ids("mlp_only_layers");
  if (step < 1) {
    fail("model config: {}: decoder_sparse_step: expected >= 1, got {}", config.where(), step);
  }
  for (int64_t layer = 0; layer < out.num_layers; ++layer) {
    const bool listed = std::find(dense.begin(), dense.end(), layer) != dense.end();
    out.moe_blocks.push_back(!listed && moe.num_experts > 0 && (layer + 1) % step == 0);
  }
}

}  // namespace

TransformerConfig qwen3_config(const ConfigReader& config) {
  const bool moe = config.string("model_type") == "qwen3_moe";
  TransformerConfig out = read_common(config, traits(moe ? "qwen3_moe" : "qwen3"));
  out.qk_norm = true;
  out.windows = read_windows(config, out.num_layers, moe);
  if (moe) read_moe(config, out);
  config.reject_unknown(harmless_keys());
  check_config(out, config.where());
  return out;
}

TransformerConfig qwen3_config(const io::GgufFile& file) {
  const std::string prefix = file.string("general.architecture");
  const bool moe = prefix == "qwen3moe";
  TransformerConfig out = read_common(file, prefix, traits(moe ? "qwen3_moe" : "qwen3"));
  out.qk_norm = true;
  if (moe) {
    out.moe = read_gguf_moe(file, prefix);
    // A block is dense when it has a dense MLP; the format has no list of them.
    for (int64_t layer = 0; layer < out.num_layers; ++layer) {
      out.moe_blocks.push_back(!file.find(fmt::format("blk.{}.ffn_gate.weight", layer)));
    }
  }
  check_config(out, file.path().string());
  return out;
}

TargetPtr load_qwen3_folder(const std::filesystem::path& folder, const ConfigReader& reader,
                            nn::Compute compute) {
  TransformerConfig config = qwen3_config(reader);
  config.eos_ids = all_eos_ids(folder, reader);
  return std::make_shared<TransformerTarget>(config, folder_weights(io::Checkpoint::open(folder)),
                                             compute);
}

TargetPtr load_qwen3_gguf(const GgufPtr& file, nn::Compute compute) {
  const TransformerConfig config = qwen3_config(*file);
  return std::make_shared<TransformerTarget>(config, gguf_weights(file, common_gguf_names(config)),
                                             compute);
}

}  // namespace dflash::target
