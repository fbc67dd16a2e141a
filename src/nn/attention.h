// Attention over cached keys for decoding and verification (no grad): rows of many sequences at
// once, each with its own list of visible key ranges. Row-invariant: keys are visited in fixed
// chunks by key position, so a row's result depends on its query and its visible keys only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nn/compute.h"

namespace dflash::nn {

/// Keys and values of one layer of one sequence, grown by doubling. f32 or bf16.
class KvBuffer {
 public:
  KvBuffer() = default;
  KvBuffer(int64_t kv_heads, int64_t head_dim, Compute storage);

  /// Stores rows k_RGE, v_RGE (f32, any strides with a dense last dimension) at storage rows
  /// first.. (overwrites what stood there).
  void write(int64_t first, const at::Tensor& k_RGE, const at::Tensor& v_RGE);
  void reserve(int64_t rows);

  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }
  int64_t capacity() const { return capacity_; }
  Compute storage() const { return storage_; }
  /// Copies of rows [begin, end) as f32 [rows, G, E], for tests and traces; the layout inside is
  /// the kernels' own.
  at::Tensor keys(int64_t begin, int64_t end) const;
  at::Tensor values(int64_t begin, int64_t end) const;

 private:
  int64_t kv_heads_ = 0, head_dim_ = 0, capacity_ = 0;
  Compute storage_ = Compute::kF32;
  at::Tensor k_, v_;
};

/// Rows [begin, end) of one buffer.
struct KeyRange {
  const KvBuffer* buffer = nullptr;
  int64_t begin = 0, end = 0;
};

/// What one query row may attend to: up to two ranges, in key order (context, own block).
struct RowKeys {
  KeyRange ranges[2];
};

/// q_RHE f32, keys.size() == R -> [R, H*E] f32; scale E^-0.5; a row without keys gives zeros. Query
/// head h reads kv head h / (H/G).
at::Tensor attend(const at::Tensor& q_RHE, std::span<const RowKeys> keys);

}  // namespace dflash::nn
