// Floating-point operations of training and decoding, counted from shapes in this one place: the
// planner, the profiler's table and the benches divide by the same numbers. A product [m, k] x
// [k, n] counts 2 m n k; operations that only move memory (norms, rotations, softmax) count none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/shapes.h"

namespace dflash::plan {

/// `count` products [m, k] x [k, n].
struct Product {
  std::string name = {};
  int64_t m = 0, n = 0, k = 0, count = 1;
  double operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(count);
  }
};
double total_operations(const std::vector<Product>& products);

/// Products of the drafter's forward over `tokens` context rows and `anchors` blocks; no head.
std::vector<Product> drafter_products(const DrafterShape& drafter, int64_t tokens, int64_t anchors);
/// Gradients of the same products: of the inputs and of the weights. The features want none.
std::vector<Product> drafter_gradients(const DrafterShape& drafter, int64_t tokens,
                                       int64_t anchors);
/// Scores and mean of values of the block attention; `keys`: context rows that a block sees, on
/// average. The backward takes twice as many.
double block_attention_operations(const DrafterShape& drafter, int64_t anchors, double keys);

/// Scores of `slots` trained slots over the head and the gradient of their rows (the head is
/// frozen: no gradient of it).
double head_operations(const DrafterShape& drafter, int64_t slots);

/// A pass of the target over `tokens` rows whose documents have `context` rows on average, taps and
/// the argmax of every row included.
double target_operations(const TargetShape& target, int64_t tokens, double context);

/// Newton-Schulz iterations on a matrix's Gram matrix (train/gram_iteration.h): of the symmetric
/// products one half; the long side enters once in two steps.
double newton_schulz_operations(int64_t rows, int64_t columns, int64_t steps);

/// Muon's orthogonalisation of every matrix, `steps` Newton-Schulz iterations.
double muon_operations(const DrafterShape& drafter, int64_t steps = 4);
/// Bytes that an update reads and writes: weights, gradients and moments.
double update_bytes(const DrafterShape& drafter, Optimizer optimizer);

}  // namespace dflash::plan
