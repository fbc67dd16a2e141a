#include "nn/head.h"

#include <ATen/ops/index_select.h>

#include <limits>

#include "base/error.h"
#include "nn/shapes.h"

namespace dflash::nn {

at::Tensor Table::embed(const at::Tensor& ids) const {
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
  return at::index_select(weight_VD, 0, flat).to(at::kFloat).reshape(shape);
}

at::Tensor Head::logits(const at::Tensor& hidden_RD) const {
  at::Tensor logits_RV = linear.forward(hidden_RD);
  const int64_t num_rows = logits_RV.size(-1);
  if (id_V.defined() || num_ids >= num_rows) return logits_RV;
  const at::Tensor padding = logits_RV.narrow(-1, num_ids, num_rows - num_ids);
  padding.fill_(-std::numeric_limits<float>::infinity());
  return logits_RV;
}

at::Tensor Head::argmax(const at::Tensor& hidden_RD) const {
  const int64_t columns = id_V.defined() ? linear.out_features() : num_ids;
  const bool packed = !c10::GradMode::is_enabled() || !linear.weight.defined();
  const at::Tensor best_R =
      packed ? linear.argmax(hidden_RD, columns) : argmax_rows(logits(hidden_RD));
  return id_V.defined() ? at::index_select(id_V, 0, best_R) : best_R;
}

at::Tensor argmax_rows(const at::Tensor& logits_RV) {
  const at::Tensor values = logits_RV.to(at::kFloat).contiguous();
  const int64_t num_rows = values.size(0), width = values.size(1);
  at::Tensor best_R = at::empty({num_rows}, at::kLong);
  int64_t* best = best_R.mutable_data_ptr<int64_t>();
  for (int64_t r = 0; r < num_rows; ++r) {
    const float* row = values.const_data_ptr<float>() + r * width;
    best[r] = std::max_element(row, row + width) - row;
  }
  return best_R;
}

}  // namespace dflash::nn
