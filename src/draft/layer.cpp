#include "draft/layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <array>

#include "base/profile.h"
#include "nn/gemm_bf16.h"
#include "nn/norm.h"

namespace dflash::draft {

nn::Linear fuse(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                nn::Compute compute) {
  const bool has_bias = !biases.empty() && biases.front().defined();
  const auto join = [](const std::vector<at::Tensor>& parts) {
    const at::Tensor all = parts.size() == 1 ? parts.front() : at::cat(parts);
    return c10::GradMode::is_enabled() ? all : all.detach();
  };
  return nn::Linear(join(weights), has_bias ? join(biases) : at::Tensor(), compute);
}

LayerProducts Drafter::Layer::products(nn::Compute compute) const {
  return {fuse({q_OD, k_OD, v_OD}, {q_bias_O, k_bias_O, v_bias_O}, compute),
          fuse({o_DO}, {o_bias_D}, compute), fuse({gate_ID, up_ID}, {}, compute),
          fuse({down_DI}, {}, compute)};
}

LayerProducts Drafter::Layer::training_products(nn::Compute compute) const {
  if (!nn::tile_products_supported(compute)) return products(compute);
  LayerProducts by_tiles;
  by_tiles.tiles = this;
  return by_tiles;
}

namespace {

at::Tensor with_bias(const at::Tensor& y_RO, const at::Tensor& bias_O) {
  return bias_O.defined() ? y_RO + bias_O : y_RO;
}

at::Tensor one_by_tiles(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return with_bias(nn::tile_products(x, {weight}, nn::Results::kSeparate)[0], bias);
}

std::array<at::Tensor, 3> qkv_rows(const LayerProducts& products, const at::Tensor& x_RD,
                                   int64_t q_size, int64_t kv_size) {
  if (const Drafter::Layer* live = products.tiles) {
    const auto y =
        nn::tile_products(x_RD, {live->q_OD, live->k_OD, live->v_OD}, nn::Results::kSeparate);
    return {with_bias(y[0], live->q_bias_O), with_bias(y[1], live->k_bias_O),
            with_bias(y[2], live->v_bias_O)};
  }
  const at::Tensor qkv = multiply(products.qkv, x_RD);
  return {qkv.narrow(1, 0, q_size), qkv.narrow(1, q_size, kv_size),
          qkv.narrow(1, q_size + kv_size, kv_size)};
}

at::Tensor o_rows(const LayerProducts& products, const at::Tensor& x) {
  const Drafter::Layer* live = products.tiles;
  return live ? one_by_tiles(x, live->o_DO, live->o_bias_D) : multiply(products.o, x);
}

at::Tensor mlp_rows(const LayerProducts& products, const at::Tensor& x) {
  if (const Drafter::Layer* live = products.tiles) {
    const at::Tensor gate_up =
        nn::tile_products(x, {live->gate_ID, live->up_ID}, nn::Results::kJoined)[0];
    return one_by_tiles(nn::swiglu(gate_up), live->down_DI, {});
  }
  return multiply(products.down, nn::swiglu(multiply(products.gate_up, x)));
}

}  // namespace

std::pair<at::Tensor, at::Tensor> Drafter::Layer::context_tiles(const at::Tensor& c_RD) const {
  const auto y = nn::tile_products(c_RD, {k_OD, v_OD}, nn::Results::kSeparate);
  return {with_bias(y[0], k_bias_O), with_bias(y[1], v_bias_O)};
}

at::Tensor multiply(const nn::Linear& linear, const at::Tensor& x) {
  const c10::AutoGradMode live(c10::GradMode::is_enabled() || linear.weight.defined());
  return linear.forward(x);
}

std::pair<at::Tensor, at::Tensor> finish_kv(const DraftSpec& spec, const at::Tensor& k_norm_E,
                                            const nn::Rope& rope, const at::Tensor& k_RO,
                                            const at::Tensor& v_RO, const at::Tensor& pos_R) {
  const std::vector<int64_t> heads = {k_RO.size(0), spec.num_kv_heads, spec.head_dim};
  const at::Tensor k_RGE = nn::rms_norm(k_RO.reshape(heads), k_norm_E, spec.rms_norm_eps);
  return {rope.apply(k_RGE, pos_R), v_RO.reshape(heads)};
}

at::Tensor run_layer(const DraftSpec& spec, const Drafter::Layer& layer,
                     const LayerProducts& products, const nn::Rope& rope, const at::Tensor& h_RD,
                     const at::Tensor& pos_R, const AttendRows& attend) {
  const int64_t rows = h_RD.size(0), e = spec.head_dim;
  const int64_t q_size = spec.num_heads * e, kv_size = spec.num_kv_heads * e;

  const auto product = [rows](int64_t out, int64_t in) {
    return [=] { return profile::product(rows, out, in, /*width=*/2); };
  };
  profile::Range part("drafter", "norms");
  const at::Tensor x_RD = nn::rms_norm(h_RD, layer.input_norm_D, spec.rms_norm_eps);
  part.next("q, k and v", product(q_size + 2 * kv_size, spec.hidden_size));
  const auto [q_RO, k_RO, v_RO] = qkv_rows(products, x_RD, q_size, kv_size);
  part.next("rotation and norms of q and k");
  at::Tensor q_RHE = q_RO.reshape({rows, spec.num_heads, e});
  q_RHE = rope.apply(nn::rms_norm(q_RHE, layer.q_norm_E, spec.rms_norm_eps), pos_R);
  const auto [k_RGE, v_RGE] = finish_kv(spec, layer.k_norm_E, rope, k_RO, v_RO, pos_R);
  part.next("attention");
  const at::Tensor mixed = attend(q_RHE, k_RGE, v_RGE);
  part.next("o", product(spec.hidden_size, q_size));
  const at::Tensor h = h_RD + o_rows(products, mixed);
  part.next("norms");
  const at::Tensor y_RD = nn::rms_norm(h, layer.post_norm_D, spec.rms_norm_eps);
  part.next("gate, up and down", product(3 * spec.intermediate_size, spec.hidden_size));
  return h + mlp_rows(products, y_RD);
}

}  // namespace dflash::draft
