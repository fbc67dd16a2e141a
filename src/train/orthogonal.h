// orthogonalise (optimizer.h, the slow twin), fast: on the Gram matrix (gram_iteration.h), in bf16
// on AMX tiles or in f32.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "train/newton_schulz.h"

namespace dflash::train {

/// Orthogonal factor of matrix_OI f32, by `iterations`, products in bf16 on tiles. One thread
/// inside a parallel region, all of them outside; the same bits either way. `norm`: Frobenius norm
/// of the matrix.
at::Tensor orthogonalise_tiles(const at::Tensor& matrix_OI, double norm,
                               std::span<const Quintic> iterations);

/// With products of f32, whose last bits may depend on the number of threads.
at::Tensor orthogonalise_f32(const at::Tensor& matrix_OI, double norm,
                             std::span<const Quintic> iterations);

}  // namespace dflash::train
