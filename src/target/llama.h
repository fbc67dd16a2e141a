// The Llama family: pre-norm blocks of grouped-query attention and SwiGLU. MODELS.md 1.3; agrees
// with transformers' LlamaForCausalLM (tests/golden/make_target.py).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/rope.h"
#include "target/llama_config.h"
#include "target/target.h"
#include "target/weights.h"

namespace dflash::target {

class LlamaTarget final : public Target {
 public:
  /// Checks the weights against the config, packs them for `compute`. `weights` stays open for
  /// layer_weights.
  LlamaTarget(const LlamaConfig& config, std::shared_ptr<const Weights> weights,
              nn::Compute compute);

  std::unique_ptr<State> new_state() const override;
  Hidden forward(const Rows& rows, const ForwardOptions& options) const override;
  at::Tensor final_norm(const at::Tensor& last_RD) const override;
  std::vector<std::pair<std::string, at::Tensor>> layer_weights(int64_t layer) const override;

 private:
  struct Layer {
    nn::Linear qkv;      // [(H + 2G) E, D] = q | k | v
    nn::Linear o;        // [D, H E]
    nn::Linear gate_up;  // [2I, D] = gate | up
    nn::Linear down;     // [D, I]
    at::Tensor input_norm_D, post_norm_D;
  };
  struct Pass;

  void load_tables();
  Layer load_layer(int64_t layer) const;
  at::Tensor read(const std::string& name) const;
  at::Tensor read_f32(const std::string& name) const;
  nn::Linear fused(int64_t layer, const std::vector<std::string>& stems) const;

  Pass begin_pass(const Rows& rows) const;
  void attention(int64_t layer_idx, Pass& pass, at::Tensor& h_RD) const;
  void mlp(const Layer& layer, at::Tensor& h_RD) const;

  LlamaConfig llama_;
  std::shared_ptr<const Weights> weights_;
  std::vector<Layer> layers_;
  nn::Rope rope_;
  at::Tensor norm_D_;
};

/// The model from a Hugging Face folder or a GGUF file.
std::shared_ptr<const Target> load_llama_folder(const std::filesystem::path& folder,
                                                const ConfigReader& config, nn::Compute compute);
std::shared_ptr<const Target> load_llama_gguf(std::shared_ptr<const io::GgufFile> file,
                                              nn::Compute compute);

}  // namespace dflash::target
