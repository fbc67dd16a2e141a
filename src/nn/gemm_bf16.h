// Products of training by AMX tiles: bf16 operands packed where they are needed, f32 sums and
// results. Twice as fast as a cast, ATen's product and a cast back, and the same rounding of the
// operands; the result is not rounded. Only where tile_products_supported(); the plain path is
// nn::Linear's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/compute.h"

namespace dflash::nn {

/// Whether `compute` is bf16 and this CPU multiplies tiles.
bool tile_products_supported(Compute compute);

/// One packed operand (kernels/tiles.h). `rows`: of the left operand, or columns of the right one.
struct TileOperand {
  at::Tensor data;  // bf16, flat
  int64_t rows = 0, k = 0;
};

/// x f32 or bf16 with a dense last dimension. Rows of k / k rows, transposed.
TileOperand left_operand(const at::Tensor& x_RK);
TileOperand left_operand_of_transposed(const at::Tensor& x_KR);
TileOperand right_operand(const at::Tensor& x_KR);
TileOperand right_operand_of_transposed(const at::Tensor& x_RK);
/// [rows, k] packed as left operand -> right operand whose k are those rows.
TileOperand right_operand_of_left(const TileOperand& left);

/// c [left.rows, right.rows] f32 with a dense last dimension, = or += left x right.
enum class Into { kSet, kAdd };
void multiply_tiles(const TileOperand& left, const TileOperand& right, Into into, at::Tensor& c);

/// c = left x right, which is symmetric: one half is computed, the other is its mirror.
void multiply_symmetric_tiles(const TileOperand& left, const TileOperand& right, at::Tensor& c);

/// x W_i^T for every weight (one to three, f32 [O_i, I]) of the same x f32 [R, I]; in the graph.
/// `kSeparate`: one result a weight; `kJoined`: one result, columns beside each other.
enum class Results { kSeparate, kJoined };
std::vector<at::Tensor> tile_products(const at::Tensor& x_RI,
                                      const std::vector<at::Tensor>& weights, Results results);

}  // namespace dflash::nn
