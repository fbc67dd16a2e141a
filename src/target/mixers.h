// What mixes tokens in a block: attention, or the gated delta net. MODELS.md 1.3, 2.1, 3.4, 3.5.
#pragma once

#include <memory>

#include "nn/linear.h"
#include "nn/rope.h"
#include "target/pass.h"
#include "target/transformer_weights.h"

namespace dflash::target {

class MixerLayer {
 public:
  virtual ~MixerLayer() = default;
  /// x_RD: the normed residual. Adds the layer's output to h_RD, leaves its pending rows in the
  /// states of the pass.
  virtual void add_to(const at::Tensor& x_RD, Pass& pass, at::Tensor& h_RD) const = 0;
};

/// Grouped-query attention over the cache, causal; with norms of q and k, a window and a gate on
/// the output where the config says so.
class AttentionLayer final : public MixerLayer {
 public:
  AttentionLayer(const LayerReader& reader, const nn::Rope& rope);
  void add_to(const at::Tensor& x_RD, Pass& pass, at::Tensor& h_RD) const override;

 private:
  void write_cache(Pass& pass, const at::Tensor& k_RGE, const at::Tensor& v_RGE) const;

  int64_t layer_, heads_, kv_heads_, head_dim_, window_;
  double eps_;
  bool gated_;
  nn::Rope rope_;
  nn::Linear qkv_;  // [(H + 2G) E, D] = q | k | v, and H E rows of the gate
  nn::Linear o_;    // [D, H E]
  at::Tensor q_norm_E_, k_norm_E_;
};

/// Gated delta net: convolution over the last rows, delta rule, norm and gate of its output.
class DeltaLayer final : public MixerLayer {
 public:
  explicit DeltaLayer(const LayerReader& reader);
  void add_to(const at::Tensor& x_RD, Pass& pass, at::Tensor& h_RD) const override;

 private:
  at::Tensor run(Pass& pass, const at::Tensor& x_RC, const at::Tensor& a_RH,
                 const at::Tensor& b_RH) const;

  size_t layer_;
  double eps_;
  nn::DeltaShape shape_;
  nn::Linear in_;                  // qkv | z | b | a
  nn::Linear out_;                 // [D, value width]
  at::Tensor conv_TC_;             // [taps, C]
  at::Tensor rate_H_, dt_bias_H_;  // exp(A_log)
  at::Tensor norm_E_;              // plain weight, not zero-centred
};

std::unique_ptr<MixerLayer> make_mixer(const LayerReader& reader, const nn::Rope& rope);

}  // namespace dflash::target
