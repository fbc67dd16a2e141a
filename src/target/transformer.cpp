#include "target/transformer.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "base/error.h"
#include "base/profile.h"
#include "nn/norm.h"
#include "nn/shapes.h"
#include "target/taps.h"

namespace dflash::target {
namespace {

at::Tensor normed(const at::Tensor& x_RD, const at::Tensor& weight_D, double eps) {
  const profile::Range range("target", "norms", [&] {
    return profile::Work{.bytes = 8.0 * static_cast<double>(x_RD.numel())};
  });
  return nn::rms_norm(x_RD, weight_D, eps);
}

}  // namespace

TransformerTarget::TransformerTarget(const TransformerConfig& config,
                                     std::shared_ptr<const Weights> weights, nn::Compute compute)
    : model_(config), weights_(std::move(weights)) {
  c10::NoGradGuard no_grad;
  config_ = config;
  compute_ = compute;
  takes_trees_ = std::ranges::count(model_.mixers, Mixer::kDelta) == 0;
  check_config(model_, weights_->where());
  check_transformer_weights(model_, *weights_);
  load_tables();
  const nn::Rope rope(model_.rope, model_.head_dim);
  for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
    const LayerReader reader(model_, *weights_, compute_, layer);
    blocks_.push_back({.input_norm_D = reader.norm("input_layernorm.weight"),
                       .post_norm_D = reader.norm("post_attention_layernorm.weight"),
                       .mixer = make_mixer(reader, rope),
                       .mlp = make_mlp(reader)});
  }
  fingerprint_ = fingerprint_of(config_, describe(model_), *weights_);
  storage_ = fmt::format("{} as {}", weights_->dtypes(), nn::compute_name(compute_));
}

void TransformerTarget::load_tables() {
  table_.weight_VD = read("embed_tokens.weight");
  norm_D_ = weights_->read("norm.weight").to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (model_.zero_centred_norms) norm_D_ = norm_D_ + 1;
  const at::Tensor head_VD = model_.tied_embeddings ? table_.weight_VD : read("lm_head.weight");
  head_.linear = nn::Linear(head_VD, {}, compute_);
  // Its plain weight stays: training and reduced draft heads read it.
  const auto blocks = head_blocks();
  blocks ? head_.linear.pack(*blocks) : head_.linear.pack();
  head_.num_ids = model_.vocab_size;
}

std::optional<nn::BlockWeight> TransformerTarget::head_blocks() const {
  return weights_->read_blocks(model_.tied_embeddings ? "embed_tokens.weight" : "lm_head.weight",
                               compute_);
}

nn::Head TransformerTarget::head_of(const std::vector<int64_t>& ids) const {
  return nn::head_of(head_, ids, head_blocks());
}

at::Tensor TransformerTarget::read(const std::string& name) const {
  return weights_->read(name).to(compute_ == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat);
}

std::unique_ptr<State> TransformerTarget::new_state() const {
  return std::make_unique<TransformerState>(this, model_, compute_);
}

Hidden TransformerTarget::forward(const Rows& rows, const ForwardOptions& options) const {
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView plain;  // a third of an operator's cost is autograd's
  const profile::Range whole("target", "pass, the rest");
  const int64_t num_rows = rows.ids_R.dim() == 1 ? rows.ids_R.size(0) : -1;
  nn::expect_shape(rows.ids_R, {num_rows}, "ids_R");
  nn::expect_shape(rows.pos_R, {num_rows}, "pos_R");
  TapWriter taps(options.taps, num_rows, model_.hidden_size, model_.num_layers);
  Pass pass = begin_pass(rows, this, model_.max_positions);
  at::Tensor h_RD = table_.embed(rows.ids_R);
  // All checks are behind us: from here the states hold pending rows.
  for (const Pass::Part& part : pass.parts) part.state->expect(part.rows.end - part.rows.begin);
  taps.take(-1, h_RD);
  for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
    const Block& block = blocks_[static_cast<size_t>(layer)];
    block.mixer->add_to(normed(h_RD, block.input_norm_D, model_.rms_norm_eps), pass, h_RD);
    block.mlp->add_to(normed(h_RD, block.post_norm_D, model_.rms_norm_eps), h_RD);
    taps.take(layer, h_RD);
  }
  return {.last_RD = h_RD, .taps_RF = taps.taps_RF()};
}

at::Tensor TransformerTarget::final_norm(const at::Tensor& last_RD) const {
  const c10::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView plain;
  nn::expect_shape(last_RD, {-1, model_.hidden_size}, "last_RD");
  return normed(last_RD, norm_D_, model_.rms_norm_eps);
}

std::vector<std::pair<std::string, at::Tensor>> TransformerTarget::layer_weights(
    int64_t layer) const {
  DF_ASSERT(layer >= 0 && layer < model_.num_layers, "layer={}", layer);
  const LayerReader reader(model_, *weights_, compute_, layer);
  std::vector<std::pair<std::string, at::Tensor>> out;
  const ExpertForm form =
      model_.is_moe(layer) ? expert_form(*weights_, layer) : ExpertForm::kStacked;
  for (const WeightSpec& spec : layer_specs(model_, layer, form)) {
    out.emplace_back(spec.name, reader.f32(spec.name).reshape(spec.shape));
  }
  return out;
}

}  // namespace dflash::target
