// The packed form of one weight matrix and its product, row-invariant: every element of y is one
// sum over k in one fixed order. Packed once at load; the layout is the same for every instruction
// set (kernels/kernels.h), in panels of 64 columns (32 where tiles multiply blocks) so that a pass
// reads memory front to back. Known to Linear and Head only.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "nn/blocks.h"
#include "nn/compute.h"
#include "nn/kernels/kernels.h"

namespace dflash::nn {

class PackedWeight {
 public:
  /// weight_OI f32 or bf16, any strides. With f32 compute too, whole steps of values that bf16
  /// holds exactly are stored as bf16: half the memory, the same bits.
  PackedWeight(const at::Tensor& weight_OI, Compute compute);
  /// Keeps the blocks; keeps_blocks(compute).
  PackedWeight(const BlockWeight& weight, Compute compute);
  /// Whether the kernels in use multiply with blocks: always in f32, in bf16 where they have tiles.
  static bool keeps_blocks(Compute compute);

  struct Output {
    float* y = nullptr;  // [rows, out], y_stride floats between rows
    int64_t y_stride = 0;
    const float* bias = nullptr;  // [out] or null
    bool add = false;             // y += instead of y =
  };
  /// y[r, o] = sum_i x[r, i] w[o, i] (+ bias[o]); x_stride floats between rows.
  void multiply(const float* x, int64_t x_stride, int64_t rows, const Output& output) const;

  /// y[r, o] = silu(gate) up for the halves (gate | up) of the products, y dense [rows, out / 2];
  /// the bits of multiply and the swiglu kernel. pairs().
  void multiply_swiglu(const float* x, int64_t x_stride, int64_t rows, const float* bias,
                       float* y) const;
  /// Whether both halves of the columns are whole panels.
  bool pairs() const { return out_ / 2 % (kernels::kPanel * kernels::kTile) == 0 && out_ % 2 == 0; }

  /// Lowest index of the largest product among columns [0, num_columns), for every row, without
  /// storing them; the products are bit-equal to multiply's.
  void argmax(const float* x, int64_t x_stride, int64_t rows, const float* bias,
              int64_t num_columns, int64_t* best) const;

  int64_t in_features() const { return in_; }
  int64_t out_features() const { return out_; }
  int64_t bytes() const { return bytes_; }
  const void* data() const { return data_.get(); }

 private:
  template <typename Work>
  void for_products(const float* x, int64_t x_stride, int64_t rows, int64_t tiles,
                    const Work& work) const;
  kernels::Product product(int64_t tile, int64_t end) const;
  void run(const kernels::Product& product) const;
  int64_t num_tiles() const;

  /// Rows are packed before the product; f32 products read them where they are.
  bool packs_rows() const { return compute_ == Compute::kBF16; }
  bool is_wide() const { return !blocks_.bits && !halves_; }  // stored as f32
  int64_t panel() const;

  int64_t in_, out_;
  Compute compute_;
  bool halves_ = false;          // stored as bf16
  kernels::BlockFormat blocks_;  // of a weight that keeps its blocks
  int64_t bytes_ = 0;
  std::shared_ptr<void> data_;
};

}  // namespace dflash::nn
