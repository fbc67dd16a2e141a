#include "nn/head.h"

#include <ATen/ops/index_select.h>

#include <limits>

#include "base/error.h"
#include "nn/parallel_rows.h"
#include "nn/profile_work.h"

namespace dflash::nn {

namespace {

/// Rows of a table as f32.
template <typename T>
void copy_rows(const at::Tensor& table_VD, const int64_t* ids, int64_t count, float* to) {
  const int64_t width = table_VD.size(1);
  const T* table = table_VD.const_data_ptr<T>();
  for (int64_t i = 0; i < count; ++i) {
    const T* from = table + ids[i] * table_VD.stride(0);
    for (int64_t d = 0; d < width; ++d) to[i * width + d] = static_cast<float>(from[d]);
  }
}

}  // namespace

at::Tensor Table::embed(const at::Tensor& ids) const {
  const profile::Range range("head", "embedding");
  const int64_t num_rows = weight_VD.size(0), width = weight_VD.size(1);
  const at::Tensor flat = ids.reshape({-1}).to(at::kLong).contiguous();
  const int64_t* id = flat.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (id[i] < 0 || id[i] >= num_rows) {
      fail("embedding: token id: expected 0 to {}, got {}", num_rows - 1, id[i]);
    }
  }
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.push_back(width);
  at::Tensor rows = at::empty(shape, at::kFloat);
  float* to = rows.mutable_data_ptr<float>();
  DF_ASSERT(weight_VD.stride(1) == 1, "table with stride {}", weight_VD.stride(1));
  if (weight_VD.scalar_type() == at::kBFloat16) {
    copy_rows<c10::BFloat16>(weight_VD, id, flat.numel(), to);
  } else {
    copy_rows<float>(weight_VD, id, flat.numel(), to);
  }
  return rows;
}

at::Tensor Head::logits(const at::Tensor& hidden_RD) const {
  const profile::Range range("head", "logits", [&] { return work_of_head(linear, hidden_RD); });
  at::Tensor logits_RV = linear.forward(hidden_RD);
  const int64_t num_rows = logits_RV.size(-1);
  if (id_V.defined() || num_ids >= num_rows) return logits_RV;
  const at::Tensor padding = logits_RV.narrow(-1, num_ids, num_rows - num_ids);
  padding.fill_(-std::numeric_limits<float>::infinity());
  return logits_RV;
}

at::Tensor Head::argmax(const at::Tensor& hidden_RD) const {
  const profile::Range range("head", "argmax", [&] { return work_of_head(linear, hidden_RD); });
  const int64_t columns = id_V.defined() ? linear.out_features() : num_ids;
  const at::Tensor best_R = linear.is_differentiable(hidden_RD) ? argmax_rows(logits(hidden_RD))
                                                                : linear.argmax(hidden_RD, columns);
  return id_V.defined() ? at::index_select(id_V, 0, best_R) : best_R;
}

Head head_of(const Head& head, const std::vector<int64_t>& ids,
             const std::optional<BlockWeight>& blocks) {
  DF_ASSERT(head.linear.weight.defined(), "the head's weight was dropped");
  Head out;
  out.num_ids = static_cast<int64_t>(ids.size());
  out.id_V = at::tensor(ids, at::kLong);
  const auto rows = [&](const at::Tensor& all) { return all.index_select(0, out.id_V); };
  out.linear = Linear(rows(head.linear.weight), {}, head.linear.compute());
  blocks ? out.linear.pack(blocks->map(rows)) : out.linear.pack();
  return out;
}

at::Tensor argmax_rows(const at::Tensor& logits_RV) {
  const at::Tensor values = logits_RV.to(at::kFloat).contiguous();
  const int64_t num_rows = values.size(0), width = values.size(1);
  at::Tensor best_R = at::empty({num_rows}, at::kLong);
  const auto run = kernels::current().argmax_row;
  parallel_rows(num_rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      kernels::Best best{-std::numeric_limits<float>::infinity(), 0};
      run(values.const_data_ptr<float>() + r * width, width, 0, &best);
      best_R.mutable_data_ptr<int64_t>()[r] = best.index;
    }
  });
  return best_R;
}

}  // namespace dflash::nn
