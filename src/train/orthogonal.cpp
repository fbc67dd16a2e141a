#include "train/orthogonal.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "nn/gemm_bf16.h"
#include "train/gram_iteration.h"

namespace dflash::train {
namespace {

bool is_tall(const at::Tensor& x_OI) {
  return x_OI.size(0) > x_OI.size(1);
}

struct TileProducts {
  static nn::TileOperand left(const at::Tensor& x) { return nn::left_operand(x); }
  static nn::TileOperand right(const at::Tensor& x) { return nn::right_operand(x); }

  static at::Tensor symmetric(const nn::TileOperand& left, const nn::TileOperand& right) {
    at::Tensor c = at::empty({left.rows, right.rows}, at::kFloat);
    nn::multiply_symmetric_tiles(left, right, c);
    return c;
  }

  static at::Tensor gram(const at::Tensor& x_OI) {
    return is_tall(x_OI) ? symmetric(nn::left_operand_of_transposed(x_OI), right(x_OI))
                         : symmetric(left(x_OI), nn::right_operand_of_transposed(x_OI));
  }

  static at::Tensor apply(const at::Tensor& q_MM, const at::Tensor& x_OI) {
    at::Tensor out = at::empty(x_OI.sizes(), at::kFloat);
    if (is_tall(x_OI)) {
      nn::multiply_tiles(left(x_OI), right(q_MM), nn::Into::kSet, out);
    } else {
      nn::multiply_tiles(left(q_MM), right(x_OI), nn::Into::kSet, out);
    }
    return out;
  }
};

/// The upper half from the lower one, by squares that stay in cache.
void mirror(at::Tensor& c_MM) {
  constexpr int64_t kSide = 32;
  const int64_t size = c_MM.size(0);
  float* c = c_MM.mutable_data_ptr<float>();
  for (int64_t top = 0; top < size; top += kSide) {
    for (int64_t start = 0; start <= top; start += kSide) {
      for (int64_t i = top; i < std::min(top + kSide, size); ++i) {
        const int64_t end = std::min(start + kSide, i);
        for (int64_t j = start; j < end; ++j) c[j * size + i] = c[i * size + j];
      }
    }
  }
}

struct F32Products {
  static const at::Tensor& left(const at::Tensor& x) { return x; }
  static const at::Tensor& right(const at::Tensor& x) { return x; }

  /// Panels of rows up to their own diagonal.
  static at::Tensor symmetric(const at::Tensor& left_MK, const at::Tensor& right_KM) {
    constexpr int64_t kPanel = 128;
    const int64_t size = left_MK.size(0);
    at::Tensor c = at::empty({size, size}, at::kFloat);
    for (int64_t top = 0; top < size; top += kPanel) {
      const int64_t end = std::min(top + kPanel, size);
      at::Tensor panel = c.slice(0, top, end).slice(1, 0, end);
      at::mm_out(panel, left_MK.slice(0, top, end), right_KM.slice(1, 0, end));
    }
    mirror(c);
    return c;
  }

  static at::Tensor gram(const at::Tensor& x_OI) {
    return is_tall(x_OI) ? symmetric(x_OI.t(), x_OI) : symmetric(x_OI, x_OI.t());
  }

  static at::Tensor apply(const at::Tensor& q_MM, const at::Tensor& x_OI) {
    return is_tall(x_OI) ? at::mm(x_OI, q_MM) : at::mm(q_MM, x_OI);
  }
};

}  // namespace

at::Tensor orthogonalise_tiles(const at::Tensor& matrix_OI, double norm,
                               std::span<const Quintic> iterations) {
  return orthogonalise_by_gram<TileProducts>(matrix_OI, norm, iterations);
}

at::Tensor orthogonalise_f32(const at::Tensor& matrix_OI, double norm,
                             std::span<const Quintic> iterations) {
  return orthogonalise_by_gram<F32Products>(matrix_OI, norm, iterations);
}

}  // namespace dflash::train
