// A decoder-only transformer: pre-norm blocks of a mixer and an MLP, whatever the family.
// MODELS.md 1.3, 3.3; agrees with transformers on every family (tests/golden/make_target.py).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/rope.h"
#include "target/mixers.h"
#include "target/mlp.h"
#include "target/target.h"
#include "target/transformer_config.h"
#include "target/weights.h"

namespace dflash::target {

class TransformerTarget final : public Target {
 public:
  /// Checks the weights against the config, packs them for `compute`. `weights` stays open for
  /// layer_weights.
  TransformerTarget(const TransformerConfig& config, std::shared_ptr<const Weights> weights,
                    nn::Compute compute);

  std::unique_ptr<State> new_state() const override;
  Hidden forward(const Rows& rows, const ForwardOptions& options) const override;
  at::Tensor final_norm(const at::Tensor& last_RD) const override;
  nn::Head head_of(const std::vector<int64_t>& ids) const override;
  std::vector<std::pair<std::string, at::Tensor>> layer_weights(int64_t layer) const override;

 private:
  struct Block {
    at::Tensor input_norm_D, post_norm_D;
    std::unique_ptr<MixerLayer> mixer;
    std::unique_ptr<Mlp> mlp;
  };

  void load_tables();
  std::optional<nn::BlockWeight> head_blocks() const;
  at::Tensor read(const std::string& name) const;

  TransformerConfig model_;
  std::shared_ptr<const Weights> weights_;
  std::vector<Block> blocks_;
  at::Tensor norm_D_;
};

}  // namespace dflash::target
