// The Newton-Schulz iteration on the Gram matrix of the short side, whose products are symmetric,
// so that half of each is computed, and which commutes with every polynomial of it; the long side
// enters once in two iterations. After three on the Gram matrix alone bf16's rounding no longer
// follows the matrix: weak directions overshoot 1.26, from where the iteration diverges.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <span>

#include "train/newton_schulz.h"

namespace dflash::train {

/// a I + b G + c G^2.
inline at::Tensor polynomial(const Quintic& quintic, const at::Tensor& gram,
                             const at::Tensor& square) {
  at::Tensor w = at::empty(gram.sizes(), at::kFloat);
  const int64_t size = gram.size(0);
  const float *g = gram.const_data_ptr<float>(), *s = square.const_data_ptr<float>();
  float* out = w.mutable_data_ptr<float>();
  const auto b = static_cast<float>(quintic.b), c = static_cast<float>(quintic.c);
  for (int64_t i = 0; i < size * size; ++i) out[i] = b * g[i] + c * s[i];
  for (int64_t i = 0; i < size; ++i) out[i * (size + 1)] += static_cast<float>(quintic.a);
  return w;
}

/// The product of the polynomials of iterations that begin with this Gram matrix.
template <typename Products>
at::Tensor factor_of(at::Tensor gram, std::span<const Quintic> iterations) {
  at::Tensor q;
  for (size_t i = 0; i < iterations.size(); ++i) {
    const auto gram_right = Products::right(gram);
    const at::Tensor w =
        polynomial(iterations[i], gram, Products::symmetric(Products::left(gram), gram_right));
    const bool last = i + 1 == iterations.size();
    if (last && i == 0) return w;
    const auto w_left = Products::left(w);
    q = i == 0 ? w : Products::symmetric(w_left, Products::right(q));
    if (last) break;
    const at::Tensor half = Products::symmetric(w_left, gram_right);
    gram = Products::symmetric(w_left, Products::right(half));
  }
  return q;
}

/// `Products`: left(x) and right(x) make operands, symmetric(left, right) a product that is known
/// to be symmetric, gram(x) that of x's short side with itself, apply(q, x) q on that side of x.
template <typename Products>
at::Tensor orthogonalise_by_gram(const at::Tensor& matrix_OI, double norm,
                                 std::span<const Quintic> iterations) {
  constexpr size_t kStepsAtOnce = 2;  // between looks at the long side
  at::Tensor x = matrix_OI;
  double scale = 1.0 / (norm + 1e-7);  // of x, on its way into the first factor
  while (!iterations.empty()) {
    const size_t count = std::min(kStepsAtOnce, iterations.size());
    at::Tensor gram = Products::gram(x);
    if (scale != 1.0) gram.mul_(scale * scale);
    at::Tensor q = factor_of<Products>(std::move(gram), iterations.first(count));
    if (scale != 1.0) q.mul_(scale);
    x = Products::apply(q, x);
    scale = 1.0;
    iterations = iterations.subspan(count);
  }
  return x;
}

}  // namespace dflash::train
