#include "draft/tile_attention.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/profile.h"
#include "draft/tile_attention_parts.h"
#include "nn/gemm_bf16.h"

namespace dflash::draft {
namespace {

using torch::autograd::AutogradContext;
using Tensors = torch::autograd::variable_list;

// Keeps the plan alive for the backward pass.
struct TilePlanHolder : torch::CustomClassHolder {
  explicit TilePlanHolder(std::shared_ptr<const AttentionPlan> p) : plan(std::move(p)) {}
  std::shared_ptr<const AttentionPlan> plan;
};

class TileAttention : public torch::autograd::Function<TileAttention> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_NKHE, const at::Tensor& k_TGE,
                            const at::Tensor& v_TGE, const at::Tensor& k_NKGE,
                            const at::Tensor& v_NKGE,
                            const std::shared_ptr<const AttentionPlan>& plan) {
    const BlockAttentionInputs in{q_NKHE.contiguous(), k_TGE.contiguous(), v_TGE.contiguous(),
                                  k_NKGE.contiguous(), v_NKGE.contiguous()};
    auto [out, lse] = tiles::attend_forward(in, *plan);
    ctx->save_for_backward({in.q_NKHE, in.k_TGE, in.v_TGE, in.k_NKGE, in.v_NKGE, out, lse});
    ctx->saved_data["plan"] = c10::IValue::make_capsule(c10::make_intrusive<TilePlanHolder>(plan));
    return out;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grad_outputs) {
    DF_ASSERT(!c10::GradMode::is_enabled(), "tile_attention is differentiable once");
    const profile::Range range("drafter", "attention, backward");
    const Tensors saved = ctx->get_saved_variables();
    const auto held = ctx->saved_data["plan"].toCapsule();
    const auto& plan = *static_cast<const TilePlanHolder&>(*held).plan;
    Tensors grads = tiles::attend_backward({saved[0], saved[1], saved[2], saved[3], saved[4]}, plan,
                                           saved[5], saved[6], grad_outputs[0].contiguous());
    grads.emplace_back();  // the plan
    return grads;
  }
};

}  // namespace

bool tile_attention_supported(nn::Compute compute, int64_t head_dim) {
  return nn::tile_products_supported(compute) && head_dim % nn::kernels::kStepK == 0;
}

at::Tensor tile_attention(const BlockAttentionInputs& inputs,
                          const std::shared_ptr<const AttentionPlan>& plan) {
  check_attention_inputs(inputs, *plan);
  if (plan->num_blocks() == 0) return inputs.q_NKHE.clone();
  return TileAttention::apply(inputs.q_NKHE, inputs.k_TGE, inputs.v_TGE, inputs.k_NKGE,
                              inputs.v_NKGE, plan);
}

}  // namespace dflash::draft
