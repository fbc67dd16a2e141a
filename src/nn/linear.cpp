#include "nn/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "nn/packed.h"
#include "nn/shapes.h"

namespace dflash::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// y = x W^T with bf16 operands; x, y and both gradients are f32. dW only when W wants it.
struct Bf16Product : torch::autograd::Function<Bf16Product> {
  static Variable forward(AutogradContext* ctx, const Variable& x_RI, const Variable& weight_OI) {
    const at::Tensor x = x_RI.to(at::kBFloat16), w = weight_OI.to(at::kBFloat16);
    ctx->save_for_backward({x, w});
    ctx->saved_data["weight_dtype"] = weight_OI.scalar_type();
    return at::mm(x, w.t()).to(at::kFloat);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor dy = grad[0].to(at::kBFloat16);
    at::Tensor dx, dw;
    if (ctx->needs_input_grad(0)) dx = at::mm(dy, saved[1]).to(at::kFloat);
    if (ctx->needs_input_grad(1)) {
      dw = at::mm(dy.t(), saved[0]).to(ctx->saved_data["weight_dtype"].toScalarType());
    }
    return {dx, dw};
  }
};

at::Tensor differentiable(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          Compute compute) {
  // f64 is for gradient checks only; it never meets the low-precision product.
  if (compute == Compute::kF32 || x.scalar_type() == at::kDouble) {
    return at::linear(x, weight.to(x.scalar_type()), bias);
  }
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  const at::Tensor y = Bf16Product::apply(x.reshape({-1, x.size(-1)}), weight).reshape(shape);
  return bias.defined() ? y + bias : y;
}

}  // namespace

Linear::Linear(at::Tensor weight_OI, at::Tensor bias_O, Compute compute)
    : weight(std::move(weight_OI)), bias(std::move(bias_O)), compute_(compute) {
  expect_shape(weight, {-1, -1}, "weight");
  out_ = weight.size(0), in_ = weight.size(1);
  if (bias.defined()) expect_shape(bias, {out_}, "bias");
}

void Linear::pack() {
  DF_ASSERT(weight.defined(), "pack after drop_unpacked");
  packed_ = std::make_shared<const PackedWeight>(weight, compute_);
  packed_version_ = weight._version();
}

void Linear::drop_unpacked() {
  DF_ASSERT(packed_ != nullptr, "drop_unpacked before pack");
  weight.reset();
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  DF_ASSERT(x.dim() >= 1 && x.size(-1) == in_, "x has {} columns, weight {}", x.size(-1), in_);
  if (c10::GradMode::is_enabled() && weight.defined()) {
    return differentiable(x, weight, bias, compute_);
  }
  DF_ASSERT(packed_ != nullptr, "forward without grad before pack()");
  DF_ASSERT(!weight.defined() || weight._version() == packed_version_,
            "weights changed after pack()");
  DF_ASSERT(!c10::GradMode::is_enabled() || !x.requires_grad(), "gradient through dropped weights");
  const at::Tensor input = x.to(at::kFloat).contiguous();
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = out_;
  at::Tensor y = at::empty(shape, at::kFloat);
  packed_->multiply(input.const_data_ptr<float>(), input.numel() / in_,
                    bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                    y.mutable_data_ptr<float>());
  return y;
}

}  // namespace dflash::nn
