// What a block does to each token by itself: a dense SwiGLU MLP, or a mixture of such experts.
// MODELS.md 1.3, 2.2, 3.3. No row depends on another row of the pass.
#pragma once

#include <memory>
#include <vector>

#include "nn/linear.h"
#include "target/transformer_weights.h"

namespace dflash::target {

class Mlp {
 public:
  virtual ~Mlp() = default;
  /// x_RD: the normed residual. Adds the output to h_RD.
  virtual void add_to(const at::Tensor& x_RD, at::Tensor& h_RD) const = 0;
};

std::unique_ptr<Mlp> make_mlp(const LayerReader& reader);

/// The experts of every row, ascending, with their weights: softmax over all experts, the largest
/// `count` of it (lowest index on ties), renormalised where asked. logits_RE f32.
struct Route {
  int64_t expert = 0;
  float weight = 0;
};
std::vector<std::vector<Route>> route(const at::Tensor& logits_RE, const MoeConfig& config);

}  // namespace dflash::target
