// Parameters and the training forward. Decoding: decoding.cpp; fresh weights: init.cpp.
#include "draft/drafter.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/error.h"
#include "base/profile.h"
#include "draft/block_attention.h"
#include "draft/layer.h"
#include "draft/tile_attention.h"
#include "nn/gemm_bf16.h"
#include "nn/norm.h"
#include "nn/shapes.h"

namespace dflash::draft {
namespace {

// One plan a distinct rule.
std::vector<std::shared_ptr<const AttentionPlan>> make_plans(const DraftSpec& spec,
                                                             const block::Blocks& blocks) {
  const std::vector<block::LayerRule>& rules = spec.rule.layers;
  std::vector<std::shared_ptr<const AttentionPlan>> plans;
  for (size_t l = 0; l < rules.size(); ++l) {
    size_t first = 0;
    while (!(rules[first] == rules[l])) ++first;
    plans.push_back(first < l ? plans[first]
                              : std::make_shared<AttentionPlan>(
                                    blocks, rules[l], spec.num_heads / spec.num_kv_heads));
  }
  return plans;
}

}  // namespace

std::map<std::string, std::vector<int64_t>> parameter_shapes(const DraftSpec& spec) {
  const int64_t d = spec.hidden_size, i = spec.intermediate_size, e = spec.head_dim;
  const int64_t q = spec.num_heads * e, kv = spec.num_kv_heads * e;
  const int64_t f = static_cast<int64_t>(spec.taps.size()) * spec.target_hidden_size;
  std::map<std::string, std::vector<int64_t>> shapes = {
      {"fc.weight", {d, f}}, {"hidden_norm.weight", {d}}, {"norm.weight", {d}}};
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    const std::string layer = fmt::format("layers.{}.", l);
    const std::string attn = layer + "self_attn.";
    shapes[layer + "input_layernorm.weight"] = {d};
    shapes[layer + "post_attention_layernorm.weight"] = {d};
    shapes[attn + "q_proj.weight"] = {q, d};
    shapes[attn + "k_proj.weight"] = {kv, d};
    shapes[attn + "v_proj.weight"] = {kv, d};
    shapes[attn + "o_proj.weight"] = {d, q};
    if (spec.attention_bias) {
      shapes[attn + "q_proj.bias"] = {q};
      shapes[attn + "k_proj.bias"] = {kv};
      shapes[attn + "v_proj.bias"] = {kv};
      shapes[attn + "o_proj.bias"] = {d};
    }
    shapes[attn + "q_norm.weight"] = {e};
    shapes[attn + "k_norm.weight"] = {e};
    shapes[layer + "mlp.gate_proj.weight"] = {i, d};
    shapes[layer + "mlp.up_proj.weight"] = {i, d};
    shapes[layer + "mlp.down_proj.weight"] = {d, i};
  }
  return shapes;
}

std::shared_ptr<Drafter> Drafter::from_weights(const DraftSpec& spec, nn::Compute compute,
                                               const std::map<std::string, at::Tensor>& weights) {
  check_spec(spec);
  const auto shapes = parameter_shapes(spec);
  std::map<std::string, at::Tensor> own;
  for (const auto& [name, shape] : shapes) {
    const auto found = weights.find(name);
    if (found == weights.end()) {
      fail(
          "drafter weights: {}: expected a tensor [{}], got none\n  hint: {} tensors expected for "
          "{} layers, {} given",
          name, fmt::join(shape, ", "), shapes.size(), spec.num_layers, weights.size());
    }
    nn::expect_shape(found->second, shape, name);
    own[name] = found->second.to(at::kFloat).contiguous();
  }
  for (const auto& [name, tensor] : weights) {
    if (!shapes.contains(name)) {
      fail(
          "drafter weights: {}: expected no such tensor, got one of shape [{}]\n  hint: {} tensors "
          "expected for {} layers, {} given",
          name, fmt::join(tensor.sizes(), ", "), shapes.size(), spec.num_layers, weights.size());
    }
  }
  std::shared_ptr<Drafter> drafter(new Drafter());
  drafter->spec_ = spec;
  drafter->compute_ = compute;
  drafter->rope_ = nn::Rope(spec.rope, spec.head_dim);
  drafter->bind(std::move(own));
  return drafter;
}

void Drafter::bind(std::map<std::string, at::Tensor> weights) {
  parameters_ = std::move(weights);
  const auto get = [&](const std::string& name) {
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? at::Tensor() : found->second;
  };
  fc_DF_ = get("fc.weight");
  hidden_norm_D_ = get("hidden_norm.weight");
  norm_D_ = get("norm.weight");
  for (int64_t l = 0; l < spec_.num_layers; ++l) {
    const std::string name = fmt::format("layers.{}.", l), attn = name + "self_attn.";
    auto layer = std::make_shared<Layer>();
    layer->input_norm_D = get(name + "input_layernorm.weight");
    layer->post_norm_D = get(name + "post_attention_layernorm.weight");
    layer->q_norm_E = get(attn + "q_norm.weight");
    layer->k_norm_E = get(attn + "k_norm.weight");
    layer->q_OD = get(attn + "q_proj.weight");
    layer->k_OD = get(attn + "k_proj.weight");
    layer->v_OD = get(attn + "v_proj.weight");
    layer->o_DO = get(attn + "o_proj.weight");
    layer->q_bias_O = get(attn + "q_proj.bias");
    layer->k_bias_O = get(attn + "k_proj.bias");
    layer->v_bias_O = get(attn + "v_proj.bias");
    layer->o_bias_D = get(attn + "o_proj.bias");
    layer->gate_ID = get(name + "mlp.gate_proj.weight");
    layer->up_ID = get(name + "mlp.up_proj.weight");
    layer->down_DI = get(name + "mlp.down_proj.weight");
    layers_.push_back(std::move(layer));
  }
}

void Drafter::set_own_tables(OwnTables tables) {
  const auto rows =
      spec_.draft_ids.empty() ? spec_.vocab_size : static_cast<int64_t>(spec_.draft_ids.size());
  const auto adopt = [&](at::Tensor& table, int64_t num_rows, const char* name) {
    if (!table.defined()) return;
    nn::expect_shape(table, {num_rows, spec_.hidden_size}, name);
    if (table.scalar_type() != at::kBFloat16) table = table.to(at::kFloat);
    table = table.contiguous();
    if (!at::isfinite(table.sum(at::kFloat)).item<bool>()) {
      fail("drafter weights: {}: expected finite values, got others\n  hint: it was never filled",
           name);
    }
  };
  adopt(tables.embed_VD, spec_.vocab_size, "embed_tokens.weight");
  adopt(tables.head_VD, rows, "lm_head.weight");
  own_tables_ = std::move(tables);
}

void Drafter::share_own_tables(const Drafter& other) {
  DF_ASSERT(spec_.vocab_size == other.spec_.vocab_size &&
                spec_.draft_ids == other.spec_.draft_ids &&
                spec_.hidden_size == other.spec_.hidden_size,
            "vocabulary {} and {}", spec_.vocab_size, other.spec_.vocab_size);
  own_tables_ = other.own_tables_;
}

void Drafter::set_requires_grad(bool on) {
  for (auto& [name, tensor] : parameters_) tensor.set_requires_grad(on);
}

nn::Linear Drafter::context_products() const {
  std::vector<at::Tensor> weights, biases;
  for (const auto& layer : layers_) {
    weights.insert(weights.end(), {layer->k_OD, layer->v_OD});
    biases.insert(biases.end(), {layer->k_bias_O, layer->v_bias_O});
  }
  return fuse(weights, biases, compute_);
}

Drafter::KeysValues Drafter::split_context(const at::Tensor& kv_RO) const {
  const int64_t size = spec_.num_kv_heads * spec_.head_dim;
  KeysValues result;
  for (int64_t l = 0; l < spec_.num_layers; ++l) {
    const int64_t at = l * 2 * size;
    result.emplace_back(kv_RO.narrow(1, at, size), kv_RO.narrow(1, at + size, size));
  }
  return result;
}

Drafter::KeysValues Drafter::context_rows(
    const at::Tensor& fc_RD, const at::Tensor& pos_R,
    const std::function<KeysValues(const at::Tensor& c_RD)>& project) const {
  nn::expect_shape(pos_R, {fc_RD.size(0)}, "positions of the features");
  profile::Range part("drafter", "norms");
  const at::Tensor c_RD = nn::rms_norm(fc_RD, hidden_norm_D_, spec_.rms_norm_eps);
  observe("fused", c_RD);
  part.next("context k and v", [&] {
    const int64_t columns = 2 * spec_.num_layers * spec_.num_kv_heads * spec_.head_dim;
    return profile::product(fc_RD.size(0), columns, spec_.hidden_size, /*width=*/2);
  });
  KeysValues result = project(c_RD);
  part.next("rotation and norms of q and k");
  for (size_t l = 0; l < layers_.size(); ++l) {
    auto& [k, v] = result[l];
    std::tie(k, v) = finish_kv(spec_, layers_[l]->k_norm_E, rope_, k, v, pos_R);
    observe(fmt::format("layers.{}.k", l), k);
    observe(fmt::format("layers.{}.v", l), v);
  }
  return result;
}

PackedContext Drafter::context(const at::Tensor& taps_TF, const at::Tensor& pos_T) const {
  nn::expect_shape(taps_TF, {-1, fc_DF_.size(1)}, "tapped features");
  const profile::Range range("drafter", "fc", [&] {
    return profile::product(taps_TF.size(0), fc_DF_.size(0), fc_DF_.size(1), /*width=*/2);
  });
  KeysValues rows;
  if (nn::tile_products_supported(compute_)) {
    const at::Tensor fc_TD = nn::tile_products(taps_TF, {fc_DF_}, nn::Results::kSeparate)[0];
    rows = context_rows(fc_TD, pos_T, [&](const at::Tensor& c_TD) {
      KeysValues all;
      for (const auto& layer : layers_) all.push_back(layer->context_tiles(c_TD));
      return all;
    });
  } else {
    rows = context_rows(
        multiply(fuse({fc_DF_}, {}, compute_), taps_TF), pos_T,
        [&](const at::Tensor& c_TD) { return split_context(multiply(context_products(), c_TD)); });
  }
  PackedContext context;
  for (auto& [k_TGE, v_TGE] : rows) {
    context.k_TGE.push_back(std::move(k_TGE));
    context.v_TGE.push_back(std::move(v_TGE));
  }
  return context;
}

at::Tensor Drafter::forward(const PackedContext& context, const block::Blocks& blocks,
                            const at::Tensor& embed_NKD) const {
  const int64_t n = blocks.num_blocks, k = blocks.block_size, d = spec_.hidden_size;
  const int64_t h = spec_.num_heads, g = spec_.num_kv_heads, e = spec_.head_dim;
  DF_ASSERT(context.k_TGE.size() == layers_.size(), "context of {} layers", context.k_TGE.size());
  nn::expect_shape(embed_NKD, {n, k, d}, "block embeddings");
  const at::Tensor pos_R = at::tensor(blocks.pos_NK, at::kLong);
  const auto plans = make_plans(spec_, blocks);
  const bool by_tiles = tile_attention_supported(compute_, e);

  at::Tensor h_RD = embed_NKD.reshape({n * k, d});
  for (size_t l = 0; l < layers_.size(); ++l) {
    const auto attend = [&](const at::Tensor& q_RHE, const at::Tensor& k_RGE,
                            const at::Tensor& v_RGE) {
      const BlockAttentionInputs inputs{.q_NKHE = q_RHE.view({n, k, h, e}),
                                        .k_TGE = context.k_TGE[l],
                                        .v_TGE = context.v_TGE[l],
                                        .k_NKGE = k_RGE.view({n, k, g, e}),
                                        .v_NKGE = v_RGE.view({n, k, g, e})};
      const at::Tensor out_NKHE =
          by_tiles ? tile_attention(inputs, plans[l]) : block_attention(inputs, plans[l]);
      return out_NKHE.reshape({n * k, h * e});
    };
    h_RD = run_layer(spec_, *layers_[l], layers_[l]->training_products(compute_), rope_, h_RD,
                     pos_R, attend);
    observe(fmt::format("layers.{}.hidden", l), h_RD);
  }
  return finish(h_RD).view({n, k, d});
}

at::Tensor Drafter::finish(const at::Tensor& h_RD) const {
  const at::Tensor rows_RD = nn::rms_norm(h_RD, norm_D_, spec_.rms_norm_eps);
  observe("hidden", rows_RD);
  return rows_RD;
}

}  // namespace dflash::draft
