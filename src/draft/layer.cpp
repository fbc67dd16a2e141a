#include "draft/layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

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

  at::Tensor x_RD = nn::rms_norm(h_RD, layer.input_norm_D, spec.rms_norm_eps);
  const at::Tensor qkv = multiply(products.qkv, x_RD);
  at::Tensor q_RHE = qkv.narrow(1, 0, q_size).reshape({rows, spec.num_heads, e});
  q_RHE = rope.apply(nn::rms_norm(q_RHE, layer.q_norm_E, spec.rms_norm_eps), pos_R);
  const auto [k_RGE, v_RGE] = finish_kv(spec, layer.k_norm_E, rope, qkv.narrow(1, q_size, kv_size),
                                        qkv.narrow(1, q_size + kv_size, kv_size), pos_R);
  const at::Tensor h = h_RD + multiply(products.o, attend(q_RHE, k_RGE, v_RGE));

  x_RD = nn::rms_norm(h, layer.post_norm_D, spec.rms_norm_eps);
  return h + multiply(products.down, nn::swiglu(multiply(products.gate_up, x_RD)));
}

}  // namespace dflash::draft
