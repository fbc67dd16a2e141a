// Qwen3.5 and 3.6 (and what ships under the same model type): three gated delta net blocks, then a
// gated attention block, and so on; zero-centred norms, a rotation of a part of each head; dense or
// with experts and a shared one. MODELS.md 3; agrees with transformers' Qwen3_5ForCausalLM and
// Qwen3_5MoeForCausalLM (tests/golden/make_target.py).
#include <ATen/ops/log.h>

#include "base/error.h"
#include "target/common_config.h"
#include "target/families.h"
#include "target/gguf_names.h"
#include "target/layer_types.h"
#include "target/transformer.h"

namespace dflash::target {
namespace {

constexpr int64_t kDefaultInterval = 4;  // every fourth block is attention

/// For text the three position streams of a picture are the same one, so the sections of the
/// rotation have no effect.
FamilyTraits traits(bool moe) {
  return {.family = moe ? "qwen3_5_moe" : "qwen3_5",
          .rope = {.may_be_partial = true,
                   .default_partial = 0.25,
                   .ignored = {"mrope_section", "mrope_interleaved"}},
          .head_dim = 256};
}

void set_family_switches(TransformerConfig& out) {
  out.qk_norm = true;
  out.output_gate = true;
  out.zero_centred_norms = true;
}

std::vector<Mixer> mixers_by_interval(int64_t layers, int64_t interval, const std::string& where) {
  if (interval < 1) {
    fail("model config: {}: full_attention_interval: expected >= 1, got {}", where, interval);
  }
  std::vector<Mixer> mixers;
  for (int64_t layer = 0; layer < layers; ++layer) {
    mixers.push_back((layer + 1) % interval == 0 ? Mixer::kAttention : Mixer::kDelta);
  }
  return mixers;
}

std::vector<Mixer> read_mixers(const ConfigReader& config, int64_t layers) {
  const int64_t interval = config.integer("full_attention_interval", kDefaultInterval);
  const auto listed = read_layer_types(config, layers, {"linear_attention", "full_attention"});
  if (listed.empty()) return mixers_by_interval(layers, interval, config.where());
  std::vector<Mixer> mixers;
  for (const std::string& word : listed) {
    mixers.push_back(word == "linear_attention" ? Mixer::kDelta : Mixer::kAttention);
  }
  return mixers;
}

/// Keys whose other values would be another computation.
void require_known_switches(const ConfigReader& config) {
  const auto expect = [&](const std::string& key, const std::string& value) {
    const std::string found = config.string(key, value);
    if (found == value || (value == "swish" && found == "silu")) return;
    fail("model config: {}: {}: expected {}, got {}", config.where(), key, value, found);
  };
  if (!config.boolean("attn_output_gate", true)) {
    fail("model config: {}: attn_output_gate: expected true, got false", config.where());
  }
  expect("output_gate_type", "swish");
  expect("mamba_ssm_dtype", "float32");
}

void read_moe(const ConfigReader& config, TransformerConfig& out) {
  out.moe = {.num_experts = config.has("num_local_experts") ? config.integer("num_local_experts")
                                                            : config.integer("num_experts"),
             .experts_per_token = config.integer("num_experts_per_tok"),
             .expert_size = config.integer("moe_intermediate_size"),
             .shared_expert_size = config.integer("shared_expert_intermediate_size"),
             .norm_topk_prob = true};
  out.moe_blocks.assign(static_cast<size_t>(out.num_layers), true);
  out.intermediate_size = 0;
}

/// Pictures and the head for several tokens are not ours.
bool left_out(const std::string& name) {
  return name.starts_with("model.visual.") || name.starts_with("visual.") ||
         name.starts_with("mtp.") || name.starts_with("model.mtp.");
}

/// Value heads of GGUF come round by round (head j reads key head j mod Hk); ours come key head by
/// key head. `dim` holds `unit` values a head, after `first` others.
at::Tensor restore_value_heads(const at::Tensor& values, int64_t dim, int64_t first, int64_t unit,
                               const nn::DeltaShape& shape) {
  const int64_t rounds = shape.value_heads / shape.key_heads;
  const at::Tensor before = values.narrow(dim, 0, first);
  const at::Tensor heads = values.narrow(dim, first, values.size(dim) - first);
  std::vector<int64_t> apart = heads.sizes().vec();
  apart[static_cast<size_t>(dim)] = unit;
  apart.insert(apart.begin() + dim, {rounds, shape.key_heads});
  return at::cat({before, heads.reshape(apart).transpose(dim, dim + 1).reshape(heads.sizes())},
                 dim);
}

at::Tensor restore(const nn::DeltaShape& shape, const std::string& name, const at::Tensor& values) {
  const auto is = [&](const char* tail) { return name.ends_with(tail); };
  const int64_t qk = 2 * shape.qk_width(), dim = shape.value_dim;
  if (is("linear_attn.norm.weight")) return values;
  if (is("norm.weight")) return values - 1;
  if (is("in_proj_qkv.weight")) return restore_value_heads(values, 0, qk, dim, shape);
  if (is("in_proj_z.weight")) return restore_value_heads(values, 0, 0, dim, shape);
  if (is("in_proj_a.weight") || is("in_proj_b.weight") || is("dt_bias")) {
    return restore_value_heads(values, 0, 0, 1, shape);
  }
  if (is("A_log")) return restore_value_heads(at::log(-values), 0, 0, 1, shape);
  if (is("conv1d.weight")) {
    const at::Tensor taps = values.reshape({shape.conv_width(), shape.conv_taps});
    return restore_value_heads(taps, 0, qk, dim, shape);
  }
  if (is("linear_attn.out_proj.weight")) return restore_value_heads(values, 1, 0, dim, shape);
  return values;
}

GgufNames gguf_names(const TransformerConfig& config) {
  GgufNames names = common_gguf_names(config);
  names.restore = [shape = config.delta](const std::string& name, at::Tensor values) {
    return restore(shape, name, values);
  };
  names.moves_rows = [](const std::string& name) {
    return !name.ends_with("linear_attn.out_proj.weight") && !name.ends_with("conv1d.weight");
  };
  return names;
}

std::vector<Mixer> gguf_mixers(const io::GgufFile& file, const std::string& prefix,
                               int64_t layers) {
  const std::string listed = prefix + ".attention.recurrent_layers";
  if (!file.has(listed)) {
    return mixers_by_interval(layers,
                              file.integer(prefix + ".full_attention_interval", kDefaultInterval),
                              file.path().string());
  }
  const std::vector<bool> recurrent = file.booleans(listed);
  if (static_cast<int64_t>(recurrent.size()) < layers) {
    fail("model config: {}: {}: expected {} entries, got {}", file.path().string(), listed, layers,
         recurrent.size());
  }
  std::vector<Mixer> mixers;
  for (int64_t layer = 0; layer < layers; ++layer) {
    mixers.push_back(recurrent[static_cast<size_t>(layer)] ? Mixer::kDelta : Mixer::kAttention);
  }
  return mixers;
}

}  // namespace

TransformerConfig qwen35_config(const ConfigReader& config) {
  const bool moe = config.string("model_type").starts_with("qwen3_5_moe");
  TransformerConfig out = read_common(config, traits(moe));
  set_family_switches(out);
  out.mixers = read_mixers(config, out.num_layers);
  out.delta = {.key_heads = config.integer("linear_num_key_heads"),
               .value_heads = config.integer("linear_num_value_heads"),
               .key_dim = config.integer("linear_key_head_dim"),
               .value_dim = config.integer("linear_value_head_dim"),
               .conv_taps = config.integer("linear_conv_kernel_dim", 4)};
  require_known_switches(config);
  if (moe) read_moe(config, out);
  std::set<std::string> harmless = harmless_keys();
  harmless.insert({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "language_model_only",
                   "mrope_section", "mrope_interleaved"});
  config.reject_unknown(harmless);
  check_config(out, config.where());
  return out;
}

TransformerConfig qwen35_config(const io::GgufFile& file) {
  const std::string prefix = file.string("general.architecture");
  const bool moe = prefix == "qwen35moe";
  TransformerConfig out = read_common(file, prefix, traits(moe));
  set_family_switches(out);
  out.mixers = gguf_mixers(file, prefix, out.num_layers);
  const int64_t value_heads = file.integer(prefix + ".ssm.time_step_rank");
  out.delta = {
      .key_heads = file.integer(prefix + ".ssm.group_count"),
      .value_heads = value_heads,
      .key_dim = file.integer(prefix + ".ssm.state_size"),
      .value_dim = file.integer(prefix + ".ssm.inner_size") / std::max<int64_t>(1, value_heads),
      .conv_taps = file.integer(prefix + ".ssm.conv_kernel")};
  if (moe) {
    out.moe = read_gguf_moe(file, prefix);
    out.moe_blocks.assign(static_cast<size_t>(out.num_layers), true);
  }
  check_config(out, file.path().string());
  return out;
}

TargetPtr load_qwen35_folder(const std::filesystem::path& folder, const ConfigReader& reader,
                             nn::Compute compute) {
  TransformerConfig config = qwen35_config(reader);
  config.eos_ids = all_eos_ids(folder, reader);
  return std::make_shared<TransformerTarget>(
      config, folder_weights(io::Checkpoint::open(folder), left_out), compute);
}

TargetPtr load_qwen35_gguf(const GgufPtr& file, nn::Compute compute) {
  const TransformerConfig config = qwen35_config(*file);
  return std::make_shared<TransformerTarget>(config, gguf_weights(file, gguf_names(config)),
                                             compute);
}

}  // namespace dflash::target
