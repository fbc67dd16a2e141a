// orthogonalise (optimizer.h, the slow twin) in bf16 on AMX tiles. The iteration runs on the Gram
// matrix of the short side, whose products are symmetric, so that half of each is computed, and
// which commutes with every polynomial of it; the long side enters once in two iterations. After
// three on the Gram matrix alone its rounding no longer follows the matrix: weak directions
// overshoot 1.26, from where the iteration diverges.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "train/newton_schulz.h"

namespace dflash::train {

/// Orthogonal factor of matrix_OI f32, by `iterations`. One thread inside a parallel region,
/// all of them outside; the same bits either way. `norm`: Frobenius norm of the matrix.
at::Tensor orthogonalise_tiles(const at::Tensor& matrix_OI, double norm,
                               std::span<const Quintic> iterations);

}  // namespace dflash::train
