// The tensor table of a transformer of a given config, by canonical names (target/weights.h), and
// how its tensors become what the blocks compute with. MODELS.md 1.2, 2.1, 2.2, 3.2.
#pragma once

#include <string>
#include <vector>

#include "nn/linear.h"
#include "target/transformer_config.h"
#include "target/weights.h"

namespace dflash::target {

/// Name of a weight of block `layer`: layer_weight_name(3, "mlp.up_proj.weight").
std::string layer_weight_name(int64_t layer, const std::string& tail);

/// How a file keeps the experts of a block: one matrix each, stacked gate and up as one tensor
/// [experts, 2 I, D] (the canonical form), or stacked but apart (GGUF).
enum class ExpertForm { kStacked, kStackedApart, kSingle };
ExpertForm expert_form(const Weights& weights, int64_t layer);

/// Tails and shapes of block `layer`, biases included where the config has them.
std::vector<WeightSpec> layer_specs(const TransformerConfig& config, int64_t layer,
                                    ExpertForm experts = ExpertForm::kStacked);

/// All weights; "lm_head.weight" only where the config does not tie it. Experts in the form of
/// `weights`, stacked without it.
std::vector<WeightSpec> transformer_specs(const TransformerConfig& config,
                                          const Weights* weights = nullptr);

/// Error that names what does not fit, the head's tie included.
void check_transformer_weights(const TransformerConfig& config, const Weights& weights);

/// Reads the tensors of one block as f32 or in what the model computes in.
class LayerReader {
 public:
  LayerReader(const TransformerConfig& config, const Weights& weights, nn::Compute compute,
              int64_t layer)
      : config_(config), weights_(weights), compute_(compute), layer_(layer) {}

  const TransformerConfig& config() const { return config_; }
  int64_t layer() const { return layer_; }
  nn::Compute compute() const { return compute_; }

  at::Tensor f32(const std::string& tail) const;
  /// As the product takes it: f32 or bf16.
  at::Tensor matrix(const std::string& tail) const;
  /// The weight of a norm as it multiplies: 1 + w where norms are zero-centred.
  at::Tensor norm(const std::string& tail) const;
  /// One product over the rows of all `stems` (with ".weight" and, where there is one, ".bias").
  nn::Linear fused(const std::vector<std::string>& stems) const;
  /// gate and up [2 I, D] and down [D, I] of every expert.
  struct Expert {
    nn::Linear gate_up, down;
  };
  std::vector<Expert> experts() const;

 private:
  /// What fused multiplies with, when all of it may stay in the blocks of its file.
  std::optional<nn::BlockWeight> fused_blocks(const std::vector<std::string>& stems) const;
  std::string name(const std::string& tail) const { return layer_weight_name(layer_, tail); }

  const TransformerConfig& config_;
  const Weights& weights_;
  nn::Compute compute_;
  int64_t layer_;
};

/// A packed product that keeps nothing else.
nn::Linear packed_linear(const at::Tensor& weight_OI, const at::Tensor& bias_O,
                         nn::Compute compute);

}  // namespace dflash::target
