#include "train/orthogonal_tiles.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "nn/gemm_bf16.h"
#include "train/newton_schulz.h"

namespace dflash::train {
namespace {

using nn::Into;
using nn::TileOperand;

constexpr size_t kStepsAtOnce = 2;  // between looks at the long side

at::Tensor square_like(const at::Tensor& gram_MM) {
  return at::empty(gram_MM.sizes(), at::kFloat);
}

at::Tensor symmetric(const TileOperand& left, const TileOperand& right) {
  at::Tensor c = at::empty({left.rows, right.rows}, at::kFloat);
  nn::multiply_symmetric_tiles(left, right, c);
  return c;
}

/// X X^T of the short side, times `scale`.
at::Tensor gram_of(const at::Tensor& x_OI, double scale) {
  const bool tall = x_OI.size(0) > x_OI.size(1);
  at::Tensor gram = tall ? symmetric(nn::left_operand_of_transposed(x_OI), nn::right_operand(x_OI))
                         : symmetric(nn::left_operand(x_OI), nn::right_operand_of_transposed(x_OI));
  if (scale != 1.0) gram.mul_(scale);
  return gram;
}

/// a I + b G + c G^2.
at::Tensor polynomial(const Quintic& quintic, const at::Tensor& gram, const at::Tensor& square) {
  at::Tensor w = square_like(gram);
  const int64_t size = gram.size(0);
  const float *g = gram.const_data_ptr<float>(), *s = square.const_data_ptr<float>();
  float* out = w.mutable_data_ptr<float>();
  const auto b = static_cast<float>(quintic.b), c = static_cast<float>(quintic.c);
  for (int64_t i = 0; i < size * size; ++i) out[i] = b * g[i] + c * s[i];
  for (int64_t i = 0; i < size; ++i) out[i * (size + 1)] += static_cast<float>(quintic.a);
  return w;
}

/// The product of the polynomials of iterations that begin with this Gram matrix.
at::Tensor factor_of(at::Tensor gram, std::span<const Quintic> iterations) {
  at::Tensor q;
  for (size_t i = 0; i < iterations.size(); ++i) {
    const TileOperand gram_right = nn::right_operand(gram);
    const at::Tensor w =
        polynomial(iterations[i], gram, symmetric(nn::left_operand(gram), gram_right));
    const bool last = i + 1 == iterations.size();
    if (last && i == 0) return w;
    const TileOperand w_left = nn::left_operand(w);
    q = i == 0 ? w : symmetric(w_left, nn::right_operand(q));
    if (!last) gram = symmetric(w_left, nn::right_operand(symmetric(w_left, gram_right)));
  }
  return q;
}

at::Tensor apply(const at::Tensor& q_MM, const at::Tensor& x_OI) {
  at::Tensor out = at::empty(x_OI.sizes(), at::kFloat);
  if (x_OI.size(0) > x_OI.size(1)) {
    nn::multiply_tiles(nn::left_operand(x_OI), nn::right_operand(q_MM), Into::kSet, out);
  } else {
    nn::multiply_tiles(nn::left_operand(q_MM), nn::right_operand(x_OI), Into::kSet, out);
  }
  return out;
}

}  // namespace

at::Tensor orthogonalise_tiles(const at::Tensor& matrix_OI, double norm,
                               std::span<const Quintic> iterations) {
  at::Tensor x = matrix_OI;
  double scale = 1.0 / (norm + 1e-7);  // of x, on its way into the first factor
  while (!iterations.empty()) {
    const size_t count = std::min(kStepsAtOnce, iterations.size());
    at::Tensor q = factor_of(gram_of(x, scale * scale), iterations.first(count));
    if (scale != 1.0) q.mul_(scale);
    x = apply(q, x);
    scale = 1.0;
    iterations = iterations.subspan(count);
  }
  return x;
}

}  // namespace dflash::train
