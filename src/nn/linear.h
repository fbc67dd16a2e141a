// y = x W^T + b. One logical weight, two paths: under grad mode autograd (bf16 or f32 products
// through ATen, f32 in and out), otherwise the packed row-invariant kernel: a row's result depends
// on that row only, whatever the number of rows (DESIGN.md 2.3).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "nn/compute.h"

namespace dflash::nn {

class PackedWeight;  // nn/packed.h
struct BlockWeight;  // nn/blocks.h

class Linear {
 public:
  Linear() = default;
  /// weight_OI f32 or bf16; bias_O f32 or undefined.
  Linear(at::Tensor weight_OI, at::Tensor bias_O, Compute compute);

  /// A packed product that keeps the blocks of a file and nothing else;
  /// PackedWeight::keeps_blocks(compute).
  Linear(const BlockWeight& weight, at::Tensor bias_O, Compute compute);

  /// x [..., I] f32 -> [..., O] f32. Where no gradient is wanted (no grad mode, or nothing that
  /// requires one) a packed weight takes the row-invariant kernel; without grad it needs pack().
  /// f64 x is for gradient checks: plain f64 products.
  at::Tensor forward(const at::Tensor& x) const;

  /// No grad: y += x W^T (+ b) in place, y contiguous f32 [..., O] (residual connections).
  void add_to(const at::Tensor& x, at::Tensor& y) const;

  /// No grad: weight [2 I, D] = gate | up; silu(gate) up, f32 [..., I]. The bits of forward and
  /// nn::swiglu, which need the products in memory.
  at::Tensor swiglu(const at::Tensor& x) const;

  /// No grad: lowest index of the largest output among [0, num_columns) of every row, int64 [R];
  /// the same bits as forward's, not stored.
  at::Tensor argmax(const at::Tensor& x, int64_t num_columns) const;

  /// Builds the packed form from `weight`. Call after loading, and again after weights changed
  /// (forward asserts it by the tensor's version counter).
  void pack();
  /// The same from blocks that hold the values of `weight` (before rounding to bf16).
  void pack(const BlockWeight& blocks);
  /// Frees `weight` once packed (frozen targets; halves the memory).
  void drop_unpacked();

  int64_t in_features() const { return in_; }
  int64_t out_features() const { return out_; }
  Compute compute() const { return compute_; }

  at::Tensor weight;  // [O, I] f32 (trainable) or bf16/f32 (frozen); undefined after drop_unpacked
  at::Tensor bias;    // [O] f32 or undefined

  /// Whether forward takes autograd's path: somebody wants a gradient, or there is no packed form.
  bool is_differentiable(const at::Tensor& x) const;

 private:
  const PackedWeight& packed(const at::Tensor& x) const;

  int64_t in_ = 0, out_ = 0;
  Compute compute_ = Compute::kF32;
  std::shared_ptr<const PackedWeight> packed_;
  uint32_t packed_version_ = 0;  // of `weight` when packed
};

}  // namespace dflash::nn
