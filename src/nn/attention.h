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

/// Half-open range of rows of a pass.
struct RowRange {
  int64_t begin = 0, end = 0;
};

/// Keys and values of one layer of one sequence, grown by doubling. f32 or bf16, laid out as the
/// right operands of the kernels' products (kernels/kernels.h): per kv head, keys as tiles of 16
/// and values as rows (f32) or tiles (bf16) by key.
class KvBuffer {
 public:
  KvBuffer() = default;
  KvBuffer(int64_t kv_heads, int64_t head_dim, Compute storage);

  /// Stores rows k_RGE, v_RGE (f32, any strides) at storage rows first.. (overwrites what stood
  /// there).
  void write(int64_t first, const at::Tensor& k_RGE, const at::Tensor& v_RGE);
  /// The same for some rows of a pass, without a tensor for them; f32, E contiguous. Different
  /// buffers may be written by different threads at once.
  void write(int64_t first, const at::Tensor& k_RGE, const at::Tensor& v_RGE, RowRange rows);
  void reserve(int64_t rows);
  /// Storage row `to` becomes what stands at `from`, bit for bit.
  void move(int64_t from, int64_t to);

  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }
  int64_t capacity() const { return capacity_; }
  Compute storage() const { return storage_; }
  /// Copies of rows [begin, end) as f32 [rows, G, E], for tests and traces.
  at::Tensor keys(int64_t begin, int64_t end) const { return copy(k_, begin, end, true); }
  at::Tensor values(int64_t begin, int64_t end) const { return copy(v_, begin, end, false); }

  /// For the kernels: capacity is a multiple of kChunk; what was never written is zero.
  static constexpr int64_t kChunk = 128;
  int64_t key_depth() const;    // stored elements of a key: E, padded for bf16
  int64_t value_width() const;  // stored elements of a value: E padded to tiles
  const void* key_chunk(int64_t kv_head, int64_t first_key) const;
  const void* value_chunk(int64_t kv_head, int64_t first_key) const;
  /// Where element e of key `key` of a chunk stands.
  int64_t key_index(int64_t key, int64_t e) const;
  int64_t value_index(int64_t key, int64_t e) const;
  /// Value `from` into `chunk`, laid out as a chunk of one kv head, as if it stood at key `to`.
  void copy_value(int64_t kv_head, int64_t from, void* chunk, int64_t to) const;
  /// A NaN or infinity was written: multiplying it by 0 would not hide it.
  bool has_non_finite() const { return non_finite_; }

 private:
  at::Tensor copy(const at::Tensor& from, int64_t begin, int64_t end, bool keys) const;
  template <typename T>
  void move_row(int64_t from, int64_t to);
  template <typename T>
  void write_rows(int64_t first, const at::Tensor& k_RGE, const at::Tensor& v_RGE, RowRange rows);

  int64_t kv_heads_ = 0, head_dim_ = 0, capacity_ = 0;
  Compute storage_ = Compute::kF32;
  bool non_finite_ = false;
  at::Tensor k_, v_;  // [G, capacity * key_depth], [G, capacity * value_width]
  std::vector<int32_t> key_step_E_, value_step_E_;  // key_index(., e) - key_index(., 0)
};

/// Rows [begin, end) of one buffer.
struct KeyRange {
  const KvBuffer* buffer = nullptr;
  int64_t begin = 0, end = 0;
};

/// The way to a row of a tree whose rows stand one after the other behind the committed ones: key
/// `first + j` is storage row rows[j] >= first + j, ascending. Keys before `first` stand in place.
/// A sum's bits depend on the places of its keys, so the kernel puts each key where the chain that
/// leads to the row would have it.
struct Branch {
  int64_t first = 0;
  std::vector<int64_t> rows;
};

/// What one query row may attend to: up to two ranges, in key order (context, own block).
struct RowKeys {
  KeyRange ranges[2];
  const Branch* branch = nullptr;  // of the first range, which then counts keys, not storage rows
};

/// q_RHE f32, keys.size() == R -> [R, H*E] f32; scale E^-0.5; a row without keys gives zeros. Query
/// head h reads kv head h / (H/G).
at::Tensor attend(const at::Tensor& q_RHE, std::span<const RowKeys> keys);

}  // namespace dflash::nn
