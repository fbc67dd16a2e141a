#include "nn/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/profile.h"
#include "nn/norm.h"
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
    const int64_t gradients = ctx->needs_input_grad(0) + ctx->needs_input_grad(1);
    const profile::Range range("drafter", "products, backward", [&] {
      return profile::product(gradients * dy.size(0), saved[1].size(0), saved[1].size(1), 2);
    });
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

Linear::Linear(const BlockWeight& blocks, at::Tensor bias_O, Compute compute)
    : bias(std::move(bias_O)),
      in_(blocks.codes_OI.size(1)),
      out_(blocks.codes_OI.size(0)),
      compute_(compute),
      packed_(std::make_shared<const PackedWeight>(blocks, compute)) {
  if (bias.defined()) expect_shape(bias, {out_}, "bias");
}

void Linear::pack(const BlockWeight& blocks) {
  DF_ASSERT(weight.defined() && weight.sizes() == blocks.codes_OI.sizes(),
            "blocks of another weight");
  packed_ = std::make_shared<const PackedWeight>(blocks, compute_);
  packed_version_ = weight._version();
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

bool Linear::is_differentiable(const at::Tensor& x) const {
  if (!c10::GradMode::is_enabled() || !weight.defined()) return false;
  const bool wanted =
      x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad());
  return wanted || packed_ == nullptr || x.scalar_type() == at::kDouble;
}

const PackedWeight& Linear::packed(const at::Tensor& x) const {
  DF_ASSERT(x.dim() >= 1 && x.size(-1) == in_, "x has {} columns, weight {}", x.size(-1), in_);
  DF_ASSERT(packed_ != nullptr, "product without grad before pack()");
  DF_ASSERT(!weight.defined() || weight._version() == packed_version_,
            "weights changed after pack()");
  DF_ASSERT(!c10::GradMode::is_enabled() || !x.requires_grad(), "gradient through dropped weights");
  return *packed_;
}

namespace {

/// Rows of floats; rows of a slice of a wider tensor are read where they are.
struct Rows {
  explicit Rows(const at::Tensor& x)
      : strided(x.dim() == 2 && x.stride(1) == 1 && x.scalar_type() == at::kFloat),
        tensor(strided ? x : x.to(at::kFloat).contiguous()),
        data(tensor.const_data_ptr<float>()),
        count(x.size(-1) ? x.numel() / x.size(-1) : 0),
        stride(strided ? x.stride(0) : x.size(-1)) {}
  bool strided;
  at::Tensor tensor;
  const float* data;
  int64_t count, stride;
};

const float* data_or_null(const at::Tensor& bias) {
  return bias.defined() ? bias.const_data_ptr<float>() : nullptr;
}

}  // namespace

at::Tensor Linear::forward(const at::Tensor& x) const {
  if (is_differentiable(x)) {
    DF_ASSERT(x.size(-1) == in_, "x has {} columns, weight {}", x.size(-1), in_);
    return differentiable(x, weight, bias, compute_);
  }
  const PackedWeight& product = packed(x);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = out_;
  at::Tensor y = at::empty(shape, at::kFloat);
  const Rows rows(x);
  product.multiply(
      rows.data, rows.stride, rows.count,
      {.y = y.mutable_data_ptr<float>(), .y_stride = out_, .bias = data_or_null(bias)});
  return y;
}

void Linear::add_to(const at::Tensor& x, at::Tensor& y) const {
  const PackedWeight& product = packed(x);
  const Rows rows(x);
  DF_ASSERT(y.is_contiguous() && y.scalar_type() == at::kFloat && y.numel() == rows.count * out_,
            "y has {} values for {} rows of {}", y.numel(), rows.count, out_);
  product.multiply(rows.data, rows.stride, rows.count,
                   {.y = y.mutable_data_ptr<float>(),
                    .y_stride = out_,
                    .bias = data_or_null(bias),
                    .add = true});
}

at::Tensor Linear::swiglu(const at::Tensor& x) const {
  const PackedWeight& product = packed(x);
  if (!product.pairs()) return nn::swiglu(forward(x));
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = out_ / 2;
  at::Tensor y = at::empty(shape, at::kFloat);
  const Rows rows(x);
  product.multiply_swiglu(rows.data, rows.stride, rows.count, data_or_null(bias),
                          y.mutable_data_ptr<float>());
  return y;
}

at::Tensor Linear::argmax(const at::Tensor& x, int64_t num_columns) const {
  const PackedWeight& product = packed(x);
  const Rows rows(x);
  at::Tensor best_R = at::empty({rows.count}, at::kLong);
  product.argmax(rows.data, rows.stride, rows.count, data_or_null(bias),
                 std::min(num_columns, out_), best_R.mutable_data_ptr<int64_t>());
  return best_R;
}

}  // namespace dflash::nn
