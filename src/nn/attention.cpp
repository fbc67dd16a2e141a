#include "nn/attention.h"

#include <limits>

#include "base/error.h"
#include "nn/shapes.h"

namespace dflash::nn {

KvBuffer::KvBuffer(int64_t kv_heads, int64_t head_dim, Compute storage)
    : kv_heads_(kv_heads), head_dim_(head_dim), storage_(storage) {}

void KvBuffer::reserve(int64_t rows) {
  if (rows <= capacity_) return;
  const int64_t grown = std::max({rows, 2 * capacity_, int64_t{64}});
  const auto dtype = storage_ == Compute::kF32 ? at::kFloat : at::kBFloat16;
  at::Tensor k = at::zeros({kv_heads_, grown, head_dim_}, dtype), v = at::zeros_like(k);
  if (capacity_ > 0) {
    k.narrow(1, 0, capacity_).copy_(k_);
    v.narrow(1, 0, capacity_).copy_(v_);
  }
  k_ = k, v_ = v, capacity_ = grown;
}

void KvBuffer::write(int64_t first, const at::Tensor& k_RGE, const at::Tensor& v_RGE) {
  expect_shape(k_RGE, {-1, kv_heads_, head_dim_}, "keys");
  expect_shape(v_RGE, {k_RGE.size(0), kv_heads_, head_dim_}, "values");
  const int64_t rows = k_RGE.size(0);
  reserve(first + rows);
  k_.narrow(1, first, rows).copy_(k_RGE.transpose(0, 1));
  v_.narrow(1, first, rows).copy_(v_RGE.transpose(0, 1));
}

at::Tensor KvBuffer::keys(int64_t begin, int64_t end) const {
  return k_.narrow(1, begin, end - begin).transpose(0, 1).to(at::kFloat).contiguous();
}

at::Tensor KvBuffer::values(int64_t begin, int64_t end) const {
  return v_.narrow(1, begin, end - begin).transpose(0, 1).to(at::kFloat).contiguous();
}

namespace {

/// Online softmax over one range for one query row.
struct Accumulator {
  float peak = -std::numeric_limits<float>::infinity(), sum = 0;
  std::vector<float> value;
};

void visit(const float* query, const at::Tensor& k_RGE, const at::Tensor& v_RGE, int64_t kv_head,
           float scale, Accumulator& acc) {
  const int64_t rows = k_RGE.size(0), kv_heads = k_RGE.size(1), dim = k_RGE.size(2);
  const float* k = k_RGE.const_data_ptr<float>();
  const float* v = v_RGE.const_data_ptr<float>();
  for (int64_t j = 0; j < rows; ++j) {
    const int64_t at_row = (j * kv_heads + kv_head) * dim;
    float dot = 0;
    for (int64_t e = 0; e < dim; ++e) dot += query[e] * k[at_row + e];
    const float score = dot * scale, peak = std::max(acc.peak, score);
    const float keep = std::exp(acc.peak - peak), weight = std::exp(score - peak);
    for (int64_t e = 0; e < dim; ++e) acc.value[e] = acc.value[e] * keep + weight * v[at_row + e];
    acc.sum = acc.sum * keep + weight;
    acc.peak = peak;
  }
}

}  // namespace

at::Tensor attend(const at::Tensor& q_RHE, std::span<const RowKeys> keys) {
  expect_shape(q_RHE, {static_cast<int64_t>(keys.size()), -1, -1}, "queries");
  const at::Tensor q = q_RHE.to(at::kFloat).contiguous();
  const int64_t num_rows = q.size(0), heads = q.size(1), dim = q.size(2);
  at::Tensor out = at::zeros({num_rows, heads * dim}, at::kFloat);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  for (int64_t r = 0; r < num_rows; ++r) {
    std::vector<Accumulator> acc(heads);
    for (Accumulator& a : acc) a.value.assign(dim, 0);
    for (const KeyRange& range : keys[r].ranges) {
      if (range.begin >= range.end) continue;
      const at::Tensor k = range.buffer->keys(range.begin, range.end);
      const at::Tensor v = range.buffer->values(range.begin, range.end);
      for (int64_t h = 0; h < heads; ++h) {
        visit(q.const_data_ptr<float>() + (r * heads + h) * dim, k, v, h * k.size(1) / heads, scale,
              acc[h]);
      }
    }
    float* to = out.mutable_data_ptr<float>() + r * heads * dim;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t e = 0; e < dim && acc[h].sum > 0; ++e) {
        to[h * dim + e] = acc[h].value[e] / acc[h].sum;
      }
    }
  }
  return out;
}

}  // namespace dflash::nn
