// Storage of keys and values; the layout is described in attention.h and kernels/kernels.h.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <omp.h>

#include <cmath>

#include "base/error.h"
#include "nn/attention.h"
#include "nn/kernels/kernels.h"
#include "nn/shapes.h"

namespace dflash::nn {

using kernels::kStepK;
using kernels::kTile;
using kernels::kTileBf16;

KvBuffer::KvBuffer(int64_t kv_heads, int64_t head_dim, Compute storage)
    : kv_heads_(kv_heads), head_dim_(head_dim), storage_(storage) {
  DF_ASSERT(kv_heads > 0 && head_dim > 0, "kv_heads={} head_dim={}", kv_heads, head_dim);
  for (int64_t e = 0; e < head_dim; ++e) {
    key_step_E_.push_back(static_cast<int32_t>(key_index(0, e)));
    value_step_E_.push_back(static_cast<int32_t>(value_index(0, e)));
  }
}

int64_t KvBuffer::key_depth() const {
  return storage_ == Compute::kF32 ? head_dim_ : kernels::round_up(head_dim_, kStepK);
}

int64_t KvBuffer::value_width() const {
  return kernels::round_up(head_dim_, kTile);
}

int64_t KvBuffer::key_index(int64_t key, int64_t e) const {
  const int64_t tile = key / kTile * kTile * key_depth(), column = key % kTile;
  if (storage_ == Compute::kF32) return tile + e * kTile + column;
  return tile + e / kStepK * kTileBf16 + e % kStepK / 2 * 2 * kTile + 2 * column + e % 2;
}

int64_t KvBuffer::value_index(int64_t key, int64_t e) const {
  if (storage_ == Compute::kF32) return key * value_width() + e;
  const int64_t step = key / kStepK * kStepK * value_width(), pair = key % kStepK / 2;
  return step + e / kTile * kTileBf16 + pair * 2 * kTile + 2 * (e % kTile) + key % 2;
}

const void* KvBuffer::key_chunk(int64_t kv_head, int64_t first_key) const {
  const int64_t at = (kv_head * capacity_ + first_key) * key_depth();
  return static_cast<const char*>(k_.const_data_ptr()) + at * k_.element_size();
}

const void* KvBuffer::value_chunk(int64_t kv_head, int64_t first_key) const {
  const int64_t at = (kv_head * capacity_ + first_key) * value_width();
  return static_cast<const char*>(v_.const_data_ptr()) + at * v_.element_size();
}

void KvBuffer::reserve(int64_t rows) {
  if (rows <= capacity_) return;
  const int64_t grown = kernels::round_up(std::max(rows, 2 * capacity_), kChunk);
  const auto dtype = storage_ == Compute::kF32 ? at::kFloat : at::kBFloat16;
  at::Tensor k = at::zeros({kv_heads_, grown * key_depth()}, dtype);
  at::Tensor v = at::zeros({kv_heads_, grown * value_width()}, dtype);
  if (capacity_ > 0) {
    k.narrow(1, 0, k_.size(1)).copy_(k_);
    v.narrow(1, 0, v_.size(1)).copy_(v_);
  }
  k_ = k, v_ = v, capacity_ = grown;
}

template <typename T>
void KvBuffer::write_rows(int64_t first, const at::Tensor& k_RGE, const at::Tensor& v_RGE,
                          RowRange rows) {
  const float* k = k_RGE.const_data_ptr<float>() + rows.begin * k_RGE.stride(0);
  const float* v = v_RGE.const_data_ptr<float>() + rows.begin * v_RGE.stride(0);
  T *all_keys = k_.mutable_data_ptr<T>(), *all_values = v_.mutable_data_ptr<T>();
  const int64_t count = rows.end - rows.begin;
  bool finite = true;
  // Keys of different rows are different memory, so threads may share the rows.
#pragma omp parallel for reduction(&& : finite) if (count >= 64 && !omp_in_parallel())
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t g = 0; g < kv_heads_; ++g) {
      const float* from_k = k + r * k_RGE.stride(0) + g * k_RGE.stride(1);
      const float* from_v = v + r * v_RGE.stride(0) + g * v_RGE.stride(1);
      T* to_k = all_keys + g * k_.size(1) + key_index(first + r, 0);
      T* to_v = all_values + g * v_.size(1) + value_index(first + r, 0);
      float zero = 0;  // becomes NaN as soon as one value is not finite
      for (int64_t e = 0; e < head_dim_; ++e) {
        to_k[key_step_E_[e]] = static_cast<T>(from_k[e]);
        to_v[value_step_E_[e]] = static_cast<T>(from_v[e]);
        zero += from_v[e] * 0.0F;
      }
      finite = finite && zero == 0;
    }
  }
  non_finite_ = non_finite_ || !finite;
}

void KvBuffer::write(int64_t first, const at::Tensor& k_RGE, const at::Tensor& v_RGE) {
  expect_shape(k_RGE, {-1, kv_heads_, head_dim_}, "keys");
  expect_shape(v_RGE, {k_RGE.size(0), kv_heads_, head_dim_}, "values");
  const auto rows = [](const at::Tensor& t) {
    return t.stride(2) == 1 && t.scalar_type() == at::kFloat ? t : t.to(at::kFloat).contiguous();
  };
  write(first, rows(k_RGE), rows(v_RGE), {0, k_RGE.size(0)});
}

void KvBuffer::write(int64_t first, const at::Tensor& k_RGE, const at::Tensor& v_RGE,
                     RowRange rows) {
  DF_ASSERT(first >= 0 && rows.begin >= 0 && rows.end <= k_RGE.size(0), "first={} rows={}..{}",
            first, rows.begin, rows.end);
  reserve(first + rows.end - rows.begin);
  storage_ == Compute::kF32 ? write_rows<float>(first, k_RGE, v_RGE, rows)
                            : write_rows<c10::BFloat16>(first, k_RGE, v_RGE, rows);
}

template <typename T>
void KvBuffer::move_row(int64_t from, int64_t to) {
  for (int64_t g = 0; g < kv_heads_; ++g) {
    T* keys = k_.mutable_data_ptr<T>() + g * k_.size(1);
    T* values = v_.mutable_data_ptr<T>() + g * v_.size(1);
    for (int64_t e = 0; e < head_dim_; ++e) {
      keys[key_index(to, e)] = keys[key_index(from, e)];
      values[value_index(to, e)] = values[value_index(from, e)];
    }
  }
}

void KvBuffer::move(int64_t from, int64_t to) {
  DF_ASSERT(from >= 0 && from < capacity_ && to >= 0 && to < capacity_, "{} to {} of {}", from, to,
            capacity_);
  if (from == to) return;
  storage_ == Compute::kF32 ? move_row<float>(from, to) : move_row<c10::BFloat16>(from, to);
}

void KvBuffer::copy_value(int64_t kv_head, int64_t from, void* chunk, int64_t to) const {
  const void* values = value_chunk(kv_head, 0);
  const auto copy_as = [&](const auto* source, auto* target) {
    for (int64_t e = 0; e < head_dim_; ++e) {
      target[value_index(to, e)] = source[value_index(from, e)];
    }
  };
  if (storage_ == Compute::kF32) {
    copy_as(static_cast<const float*>(values), static_cast<float*>(chunk));
  } else {
    copy_as(static_cast<const uint16_t*>(values), static_cast<uint16_t*>(chunk));
  }
}

at::Tensor KvBuffer::copy(const at::Tensor& from, int64_t begin, int64_t end, bool keys) const {
  DF_ASSERT(begin >= 0 && begin <= end && end <= capacity_, "rows {}..{} of {}", begin, end,
            capacity_);
  const at::Tensor flat = from.to(at::kFloat);
  at::Tensor rows = at::empty({end - begin, kv_heads_, head_dim_}, at::kFloat);
  float* to = rows.mutable_data_ptr<float>();
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t g = 0; g < kv_heads_; ++g) {
      const float* head = flat.const_data_ptr<float>() + g * flat.size(1);
      for (int64_t e = 0; e < head_dim_; ++e) {
        *to++ = head[keys ? key_index(r, e) : value_index(r, e)];
      }
    }
  }
  return rows;
}

}  // namespace dflash::nn
