// Building a LlamaTarget from weights of any source.
#include <fmt/ranges.h>

#include "base/error.h"
#include "target/llama.h"
#include "target/llama_weights.h"

namespace dflash::target {
namespace {

/// Tied weights may be stored twice; they must then be the same.
bool drop_stored_twin(const Weights& weights) {
  const WeightInfo* head = weights.find("lm_head.weight");
  if (!head) return false;
  const WeightInfo* table = weights.find("embed_tokens.weight");
  const bool same =
      table && table->dtype == head->dtype && table->shape == head->shape &&
      std::equal(table->bytes.begin(), table->bytes.end(), head->bytes.begin(), head->bytes.end());
  if (!same) {
    fail(
        "target weights: {}: tie_word_embeddings is true but {} differs from the embedding\n"
        "  hint: set tie_word_embeddings to false if the model has its own head",
        weights.where(), head->file_name);
  }
  return true;
}

std::string rope_text(const nn::RopeConfig& rope) {
  return fmt::format("{} {:.9g} {:.9g} {:.9g} {:.9g} {:.9g}", rope.scaling, rope.factor,
                     rope.low_freq_factor, rope.high_freq_factor, rope.original_max_positions,
                     fmt::join(rope.frequency_factors, " "));
}

void check_llama_weights(const LlamaConfig& config, const Weights& weights) {
  std::vector<WeightSpec> specs = llama_specs(config);
  if (config.tied_embeddings) {
    if (drop_stored_twin(weights)) {
      specs.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
    }
  } else if (!weights.find("lm_head.weight")) {
    fail(
        "target weights: {}: no lm_head.weight, and tie_word_embeddings is not true\n  hint: set "
        "it if the embedding is the head",
        weights.where());
  }
  check_weights(weights, specs);
}

}  // namespace

LlamaTarget::LlamaTarget(const LlamaConfig& config, std::shared_ptr<const Weights> weights,
                         nn::Compute compute)
    : llama_(config), weights_(std::move(weights)), rope_(config.rope, config.head_dim) {
  c10::NoGradGuard no_grad;
  config_ = config;
  compute_ = compute;
  check_config(config_, weights_->where());
  check_llama_weights(llama_, *weights_);
  load_tables();
  for (int64_t layer = 0; layer < llama_.num_layers; ++layer) layers_.push_back(load_layer(layer));
  fingerprint_ = fingerprint_of(config_, rope_text(llama_.rope), *weights_);
  storage_ = fmt::format("{} as {}", weights_->dtypes(), nn::compute_name(compute_));
}

void LlamaTarget::load_tables() {
  table_.weight_VD = read("embed_tokens.weight");
  norm_D_ = read_f32("norm.weight");
  const at::Tensor head_VD = llama_.tied_embeddings ? table_.weight_VD : read("lm_head.weight");
  head_.linear = nn::Linear(head_VD, {}, compute_);
  head_.linear.pack();  // its plain weight stays: training and reduced draft heads read it
  head_.num_ids = llama_.vocab_size;
}

LlamaTarget::Layer LlamaTarget::load_layer(int64_t layer) const {
  return {.qkv = fused(layer, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}),
          .o = fused(layer, {"self_attn.o_proj"}),
          .gate_up = fused(layer, {"mlp.gate_proj", "mlp.up_proj"}),
          .down = fused(layer, {"mlp.down_proj"}),
          .input_norm_D = read_f32(layer_weight_name(layer, "input_layernorm.weight")),
          .post_norm_D = read_f32(layer_weight_name(layer, "post_attention_layernorm.weight"))};
}

at::Tensor LlamaTarget::read(const std::string& name) const {
  return weights_->read(name).to(compute_ == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat);
}

at::Tensor LlamaTarget::read_f32(const std::string& name) const {
  return weights_->read(name).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

nn::Linear LlamaTarget::fused(int64_t layer, const std::vector<std::string>& stems) const {
  std::vector<at::Tensor> weights, biases;
  for (const std::string& stem : stems) {
    weights.push_back(read(layer_weight_name(layer, stem + ".weight")));
    const std::string bias = layer_weight_name(layer, stem + ".bias");
    if (weights_->find(bias)) biases.push_back(read_f32(bias));
  }
  nn::Linear linear(at::cat(weights), biases.empty() ? at::Tensor() : at::cat(biases), compute_);
  linear.pack();
  linear.drop_unpacked();
  return linear;
}

std::vector<std::pair<std::string, at::Tensor>> LlamaTarget::layer_weights(int64_t layer) const {
  DF_ASSERT(layer >= 0 && layer < llama_.num_layers, "layer={}", layer);
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const WeightSpec& spec : llama_layer_specs(llama_)) {
    out.emplace_back(spec.name, read_f32(layer_weight_name(layer, spec.name)));
  }
  return out;
}

std::shared_ptr<const Target> load_llama_folder(const std::filesystem::path& folder,
                                                const ConfigReader& reader, nn::Compute compute) {
  LlamaConfig config = llama_config(reader);
  config.eos_ids = all_eos_ids(folder, reader);
  return std::make_shared<LlamaTarget>(config, folder_weights(io::Checkpoint::open(folder)),
                                       compute);
}

std::shared_ptr<const Target> load_llama_gguf(std::shared_ptr<const io::GgufFile> file,
                                              nn::Compute compute) {
  const LlamaConfig config = llama_config(*file);
  return std::make_shared<LlamaTarget>(config, gguf_weights(file, llama_gguf_names(config)),
                                       compute);
}

}  // namespace dflash::target
