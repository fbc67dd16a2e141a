// Llama 2 and 3.x, SmolLM2: grouped-query attention and SwiGLU. MODELS.md 1; agrees with
// transformers' LlamaForCausalLM (tests/golden/make_target.py).
#include "target/common_config.h"
#include "target/families.h"
#include "target/gguf_names.h"
#include "target/transformer.h"

namespace dflash::target {
namespace {

const FamilyTraits kTraits = {.family = "llama"};

GgufNames gguf_names(const TransformerConfig& config) {
  GgufNames names = common_gguf_names(config);
  // The rows of q and k are permuted for a rotation of neighbouring pairs.
  names.restore = [heads = config.num_heads, kv_heads = config.num_kv_heads](
                      const std::string& name, at::Tensor values) {
    if (name.find(".q_proj.") != std::string::npos) return restore_head_rows(values, heads);
    if (name.find(".k_proj.") != std::string::npos) return restore_head_rows(values, kv_heads);
    return values;
  };
  return names;
}

}  // namespace

TransformerConfig llama_config(const ConfigReader& config) {
  config.string("model_type", "llama");
  TransformerConfig out = read_common(config, kTraits);
  out.mlp_bias = config.boolean("mlp_bias", false);
  config.reject_unknown(harmless_keys());
  check_config(out, config.where());
  return out;
}

TransformerConfig llama_config(const io::GgufFile& file) {
  TransformerConfig out = read_common(file, "llama", kTraits);
  require_zero(file, "llama.expert_count");
  check_config(out, file.path().string());
  return out;
}

TargetPtr load_llama_folder(const std::filesystem::path& folder, const ConfigReader& reader,
                            nn::Compute compute) {
  TransformerConfig config = llama_config(reader);
  config.eos_ids = all_eos_ids(folder, reader);
  return std::make_shared<TransformerTarget>(config, folder_weights(io::Checkpoint::open(folder)),
                                             compute);
}

TargetPtr load_llama_gguf(const GgufPtr& file, nn::Compute compute) {
  const TransformerConfig config = llama_config(*file);
  return std::make_shared<TransformerTarget>(config, gguf_weights(file, gguf_names(config)),
                                             compute);
}

}  // namespace dflash::target
