// One drafter layer: the only implementation of its maths, for training and for decoding. The two
// callers differ in where the products come from (live weights or packed forms) and in the
// attention they pass in. Internal to draft/.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

#include "draft/drafter.h"
#include "draft/spec.h"
#include "nn/linear.h"
#include "nn/rope.h"

namespace dflash::draft {

/// The matrices of a layer on the way of a block row; q/k/v and gate/up are one product each.
struct LayerProducts {
  nn::Linear qkv, o, gate_up, down;
  /// Training by AMX tiles (nn/gemm_bf16.h): the live weights of this layer, the above are empty.
  const Drafter::Layer* tiles = nullptr;
};

struct Drafter::Layer {
  at::Tensor input_norm_D, post_norm_D, q_norm_E, k_norm_E;
  at::Tensor q_OD, k_OD, v_OD, o_DO, gate_ID, up_ID, down_DI;
  at::Tensor q_bias_O, k_bias_O, v_bias_O, o_bias_D;  // undefined without attention_bias

  LayerProducts packed;  // filled by Drafter::pack

  /// Products over the live weights; under grad mode in the graph.
  LayerProducts products(nn::Compute compute) const;
  /// The same for a training pass: by tiles where the CPU has them.
  LayerProducts training_products(nn::Compute compute) const;
  /// k and v projections of context rows by tiles, [R, G*E] each.
  std::pair<at::Tensor, at::Tensor> context_tiles(const at::Tensor& c_RD) const;
};

/// q_RHE, k_RGE (normed, roped), v_RGE of the block rows -> [R, H*E].
using AttendRows = std::function<at::Tensor(const at::Tensor& q_RHE, const at::Tensor& k_RGE,
                                            const at::Tensor& v_RGE)>;

/// h_RD -> h_RD after attention and MLP.
at::Tensor run_layer(const DraftSpec& spec, const Drafter::Layer& layer,
                     const LayerProducts& products, const nn::Rope& rope, const at::Tensor& h_RD,
                     const at::Tensor& pos_R, const AttendRows& attend);

/// K (normed, roped) and V rows of one layer from its k and v projections [R, G*E].
std::pair<at::Tensor, at::Tensor> finish_kv(const DraftSpec& spec, const at::Tensor& k_norm_E,
                                            const nn::Rope& rope, const at::Tensor& k_RO,
                                            const at::Tensor& v_RO, const at::Tensor& pos_R);

/// Weights (and biases, when defined) one below the other as one product; in the graph under grad
/// mode, detached otherwise.
nn::Linear fuse(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                nn::Compute compute);

/// linear(x), from the live weight where it has one, even without grad mode (validation loss), else
/// from the packed form.
at::Tensor multiply(const nn::Linear& linear, const at::Tensor& x);

}  // namespace dflash::draft
