// RMSNorm and SwiGLU: one pass over each row, forwards and backwards; f64 (gradient checks) goes
// through plain ATen ops.
#include "nn/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "nn/parallel_rows.h"
#include "nn/shapes.h"

namespace dflash::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::Tensor dense(const at::Tensor& x) {
  return x.to(at::kFloat).contiguous();
}

/// A tensor seen as `outer` groups of `inner` rows, so that a slice of heads is read in place.
struct RowGroups {
  explicit RowGroups(const at::Tensor& given) {
    const int64_t dims = given.dim();
    width = given.size(-1);
    const bool sliced = dims == 3 && given.stride(2) == 1 && given.scalar_type() == at::kFloat;
    tensor = sliced ? given : dense(given);
    inner = sliced ? given.size(1) : 1;
    outer = width && inner ? given.numel() / width / inner : 0;
    inner_stride = sliced ? given.stride(1) : width;
    outer_stride = sliced ? given.stride(0) : width;
    data = tensor.const_data_ptr<float>();
  }
  at::Tensor tensor;
  const float* data = nullptr;
  int64_t outer = 0, inner = 0, width = 0, outer_stride = 0, inner_stride = 0;
};

at::Tensor norm_rows(const at::Tensor& x, const at::Tensor& weight, double eps, float* inverse) {
  const RowGroups in(x);
  const at::Tensor w = dense(weight);
  at::Tensor y = at::empty(x.sizes(), at::kFloat);
  float* to = y.mutable_data_ptr<float>();
  const auto run = kernels::current().norm;
  parallel_rows(in.outer, in.inner * in.width, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      run({.x = in.data + g * in.outer_stride,
           .weight = w.const_data_ptr<float>(),
           .rows = in.inner,
           .width = in.width,
           .x_stride = in.inner_stride,
           .eps = eps,
           .y = to + g * in.inner * in.width,
           .inverse = inverse ? inverse + g * in.inner : nullptr});
    }
  });
  return y;
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const Variable& weight,
                          double eps) {
    const at::Tensor inverse = at::empty({x.numel() / x.size(-1)}, at::kFloat);
    ctx->save_for_backward({x, weight, inverse});
    return norm_rows(x, weight, eps, inverse.mutable_data_ptr<float>());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor x = dense(saved[0]), w = dense(saved[1]), dy = dense(grad[0]);
    const int64_t width = x.size(-1), rows = x.numel() / width;
    const bool wants_dw = ctx->needs_input_grad(1);
    at::Tensor dx = at::empty(x.sizes(), at::kFloat), dw;
    // One partial sum a fixed slice of rows, added in order: the same on any number of threads.
    constexpr int64_t kSlice = 256;
    const int64_t slices = (rows + kSlice - 1) / kSlice;
    at::Tensor partial = wants_dw ? at::zeros({slices, width}, at::kFloat) : at::Tensor();
    const auto run = kernels::current().norm_backward;
    parallel_rows(slices, 3 * kSlice * width, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        const int64_t first = s * kSlice;
        run({.x = x.const_data_ptr<float>() + first * width,
             .weight = w.const_data_ptr<float>(),
             .inverse = saved[2].const_data_ptr<float>() + first,
             .dy = dy.const_data_ptr<float>() + first * width,
             .rows = std::min(kSlice, rows - first),
             .width = width,
             .dx = dx.mutable_data_ptr<float>() + first * width,
             .dw = wants_dw ? partial.mutable_data_ptr<float>() + s * width : nullptr});
      }
    });
    if (wants_dw) dw = partial.sum(0);
    return {dx, dw, Variable()};
  }
};

at::Tensor swiglu_rows(const at::Tensor& gate_up) {
  const at::Tensor in = dense(gate_up);
  const int64_t width = in.size(-1) / 2, rows = width ? in.numel() / (2 * width) : 0;
  std::vector<int64_t> shape = gate_up.sizes().vec();
  shape.back() = width;
  at::Tensor y = at::empty(shape, at::kFloat);
  const auto run = kernels::current().swiglu;
  parallel_rows(rows, 3 * width, [&](int64_t begin, int64_t end) {
    run(in.const_data_ptr<float>() + begin * 2 * width, end - begin, width,
        y.mutable_data_ptr<float>() + begin * width);
  });
  return y;
}

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static Variable forward(AutogradContext* ctx, const Variable& gate_up) {
    ctx->save_for_backward({gate_up});
    return swiglu_rows(gate_up);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const at::Tensor in = dense(ctx->get_saved_variables()[0]), dy = dense(grad[0]);
    const int64_t width = dy.size(-1), rows = width ? dy.numel() / width : 0;
    at::Tensor dx = at::empty(in.sizes(), at::kFloat);
    const auto run = kernels::current().swiglu_backward;
    parallel_rows(rows, 5 * width, [&](int64_t begin, int64_t end) {
      run(in.const_data_ptr<float>() + begin * 2 * width,
          dy.const_data_ptr<float>() + begin * width, end - begin, width,
          dx.mutable_data_ptr<float>() + begin * 2 * width);
    });
    return {dx};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  DF_ASSERT(weight_D.dim() == 1 && x.size(-1) == weight_D.size(0), "x has {}, weight {}",
            x.size(-1), weight_D.size(0));
  if (x.scalar_type() == at::kDouble) {
    return x * at::rsqrt(at::mean(x * x, -1, true) + eps) * weight_D;
  }
  if (!c10::GradMode::is_enabled()) return norm_rows(x, weight_D, eps, nullptr);
  return NormFunction::apply(x, weight_D, eps);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const int64_t width = gate_up.size(-1) / 2;
  DF_ASSERT(gate_up.size(-1) == 2 * width, "odd width {}", gate_up.size(-1));
  if (gate_up.scalar_type() == at::kDouble) {
    return at::silu(gate_up.narrow(-1, 0, width)) * gate_up.narrow(-1, width, width);
  }
  return c10::GradMode::is_enabled() ? SwigluFunction::apply(gate_up) : swiglu_rows(gate_up);
}

at::Tensor logistic_gate(const at::Tensor& x_RN, const at::Tensor& gate_RN) {
  const int64_t rows = x_RN.size(0), width = x_RN.size(1);
  expect_shape(gate_RN, {rows, width}, "gate");
  DF_ASSERT(x_RN.stride(1) == 1 && gate_RN.stride(1) == 1, "strides {} and {}", x_RN.stride(1),
            gate_RN.stride(1));
  at::Tensor y_RN = at::empty({rows, width}, at::kFloat);
  const auto run = kernels::current().gate_row;
  parallel_rows(rows, 3 * width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      run(x_RN.const_data_ptr<float>() + r * x_RN.stride(0),
          gate_RN.const_data_ptr<float>() + r * gate_RN.stride(0), width,
          y_RN.mutable_data_ptr<float>() + r * width);
    }
  });
  return y_RN;
}

}  // namespace dflash::nn
