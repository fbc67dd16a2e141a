#include "target/transformer_weights.h"

#include "base/error.h"

namespace dflash::target {
namespace {

using Specs = std::vector<WeightSpec>;

void add_linear(Specs& specs, const std::string& stem, int64_t out, int64_t in, bool with_bias) {
  specs.push_back({stem + ".weight", {out, in}});
  if (with_bias) specs.push_back({stem + ".bias", {out}});
}

void add_attention(Specs& specs, const TransformerConfig& c) {
  const int64_t hidden = c.hidden_size;
  add_linear(specs, "self_attn.q_proj", c.q_rows() * (c.output_gate ? 2 : 1), hidden,
             c.attention_bias);
  add_linear(specs, "self_attn.k_proj", c.kv_rows(), hidden, c.attention_bias);
  add_linear(specs, "self_attn.v_proj", c.kv_rows(), hidden, c.attention_bias);
  add_linear(specs, "self_attn.o_proj", hidden, c.q_rows(), c.attention_bias);
  if (!c.qk_norm) return;
  specs.push_back({"self_attn.q_norm.weight", {c.head_dim}});
  specs.push_back({"self_attn.k_norm.weight", {c.head_dim}});
}

void add_delta(Specs& specs, const TransformerConfig& c) {
  const nn::DeltaShape& d = c.delta;
  const std::string stem = "linear_attn.";
  add_linear(specs, stem + "in_proj_qkv", d.conv_width(), c.hidden_size, false);
  add_linear(specs, stem + "in_proj_z", d.value_width(), c.hidden_size, false);
  add_linear(specs, stem + "in_proj_b", d.value_heads, c.hidden_size, false);
  add_linear(specs, stem + "in_proj_a", d.value_heads, c.hidden_size, false);
  specs.push_back({stem + "conv1d.weight", {d.conv_width(), 1, d.conv_taps}});
  specs.push_back({stem + "A_log", {d.value_heads}});
  specs.push_back({stem + "dt_bias", {d.value_heads}});
  specs.push_back({stem + "norm.weight", {d.value_dim}});
  add_linear(specs, stem + "out_proj", c.hidden_size, d.value_width(), false);
}

void add_mlp(Specs& specs, const std::string& stem, int64_t hidden, int64_t inner, bool bias) {
  add_linear(specs, stem + "gate_proj", inner, hidden, bias);
  add_linear(specs, stem + "up_proj", inner, hidden, bias);
  add_linear(specs, stem + "down_proj", hidden, inner, bias);
}

void add_experts(Specs& specs, const TransformerConfig& c, ExpertForm form) {
  const int64_t hidden = c.hidden_size, count = c.moe.num_experts, inner = c.moe.expert_size;
  const std::string stem = "mlp.experts.";
  if (form == ExpertForm::kSingle) {
    for (int64_t e = 0; e < count; ++e) {
      add_mlp(specs, fmt::format("{}{}.", stem, e), hidden, inner, false);
    }
    return;
  }
  if (form == ExpertForm::kStacked) {
    specs.push_back({stem + "gate_up_proj", {count, 2 * inner, hidden}});
  } else {
    specs.push_back({stem + "gate_proj", {count, inner, hidden}});
    specs.push_back({stem + "up_proj", {count, inner, hidden}});
  }
  specs.push_back({stem + "down_proj", {count, hidden, inner}});
}

void add_moe(Specs& specs, const TransformerConfig& c, ExpertForm form) {
  add_linear(specs, "mlp.gate", c.moe.num_experts, c.hidden_size, false);
  add_experts(specs, c, form);
  if (c.moe.shared_expert_size == 0) return;
  add_mlp(specs, "mlp.shared_expert.", c.hidden_size, c.moe.shared_expert_size, false);
  add_linear(specs, "mlp.shared_expert_gate", 1, c.hidden_size, false);
}

/// Before a name is made for each of them.
void require_experts(const TransformerConfig& config, const Weights& weights) {
  const auto tensors = static_cast<int64_t>(weights.list().size());
  if (config.moe.num_experts <= tensors / 3) return;
  fail("target weights: {}: expected {} experts of three tensors a block, got {} tensors in all",
       weights.where(), config.moe.num_experts, tensors);
}

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

}  // namespace

std::string layer_weight_name(int64_t layer, const std::string& tail) {
  return fmt::format("layers.{}.{}", layer, tail);
}

ExpertForm expert_form(const Weights& weights, int64_t layer) {
  const auto has = [&](const char* tail) {
    return weights.find(layer_weight_name(layer, std::string("mlp.experts.") + tail)) != nullptr;
  };
  if (has("0.gate_proj.weight")) return ExpertForm::kSingle;
  return has("gate_proj") ? ExpertForm::kStackedApart : ExpertForm::kStacked;
}

Specs layer_specs(const TransformerConfig& config, int64_t layer, ExpertForm experts) {
  const int64_t hidden = config.hidden_size;
  Specs specs = {{"input_layernorm.weight", {hidden}},
                 {"post_attention_layernorm.weight", {hidden}}};
  config.mixer(layer) == Mixer::kDelta ? add_delta(specs, config) : add_attention(specs, config);
  if (config.is_moe(layer)) {
    add_moe(specs, config, experts);
  } else {
    add_mlp(specs, "mlp.", hidden, config.intermediate_size, config.mlp_bias);
  }
  return specs;
}

Specs transformer_specs(const TransformerConfig& config, const Weights* weights) {
  Specs specs = {{"embed_tokens.weight", {config.vocab_size, config.hidden_size}},
                 {"norm.weight", {config.hidden_size}}};
  if (!config.tied_embeddings) {
    specs.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
  }
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool look = weights && config.is_moe(layer);
    const ExpertForm form = look ? expert_form(*weights, layer) : ExpertForm::kStacked;
    if (form == ExpertForm::kSingle) require_experts(config, *weights);
    for (const WeightSpec& spec : layer_specs(config, layer, form)) {
      specs.push_back({layer_weight_name(layer, spec.name), spec.shape});
    }
  }
  return specs;
}

void check_transformer_weights(const TransformerConfig& config, const Weights& weights) {
  Specs specs = transformer_specs(config, &weights);
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

nn::Linear packed_linear(const at::Tensor& weight_OI, const at::Tensor& bias_O,
                         nn::Compute compute) {
  nn::Linear linear(weight_OI, bias_O, compute);
  linear.pack();
  linear.drop_unpacked();
  return linear;
}

at::Tensor LayerReader::f32(const std::string& tail) const {
  return weights_.read(name(tail)).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor LayerReader::matrix(const std::string& tail) const {
  return weights_.read(name(tail)).to(compute_ == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat);
}

at::Tensor LayerReader::norm(const std::string& tail) const {
  const at::Tensor weight = f32(tail);
  return config_.zero_centred_norms ? weight + 1 : weight;
}

std::optional<nn::BlockWeight> LayerReader::fused_blocks(
    const std::vector<std::string>& stems) const {
  std::vector<nn::BlockWeight> parts;
  for (const std::string& stem : stems) {
    auto blocks = weights_.read_blocks(name(stem + ".weight"), compute_);
    if (!blocks) return std::nullopt;
    parts.push_back(std::move(*blocks));
  }
  return nn::joined(parts);
}

nn::Linear LayerReader::fused(const std::vector<std::string>& stems) const {
  std::vector<at::Tensor> weights, biases;
  for (const std::string& stem : stems) {
    if (weights_.find(name(stem + ".bias"))) biases.push_back(f32(stem + ".bias"));
  }
  const at::Tensor bias = biases.empty() ? at::Tensor() : at::cat(biases);
  if (const auto blocks = fused_blocks(stems)) return {*blocks, bias, compute_};
  for (const std::string& stem : stems) weights.push_back(matrix(stem + ".weight"));
  return packed_linear(at::cat(weights), bias, compute_);
}

std::vector<LayerReader::Expert> LayerReader::experts() const {
  const ExpertForm form = expert_form(weights_, layer_);
  const std::string stem = "mlp.experts.";
  std::vector<Expert> experts;
  at::Tensor gate_up_EOI, up_EOI, down_EOI;
  if (form != ExpertForm::kSingle) {
    const bool apart = form == ExpertForm::kStackedApart;
    gate_up_EOI = matrix(stem + (apart ? "gate_proj" : "gate_up_proj"));
    if (apart) up_EOI = matrix(stem + "up_proj");
    down_EOI = matrix(stem + "down_proj");
  }
  for (int64_t e = 0; e < config_.moe.num_experts; ++e) {
    if (form == ExpertForm::kSingle) {
      const std::string one = fmt::format("{}{}.", stem, e);
      experts.push_back({.gate_up = fused({one + "gate_proj", one + "up_proj"}),
                         .down = fused({one + "down_proj"})});
      continue;
    }
    at::Tensor gate_up = gate_up_EOI.select(0, e);
    if (up_EOI.defined()) gate_up = at::cat({gate_up, up_EOI.select(0, e)});
    experts.push_back({.gate_up = packed_linear(gate_up, {}, compute_),
                       .down = packed_linear(down_EOI.select(0, e), {}, compute_)});
  }
  return experts;
}

}  // namespace dflash::target
