// Softmax by chunks of logits; the AMX path is in vocabulary_tiles.cpp.
#include "train/vocabulary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "nn/shapes.h"
#include "train/kernels/rows.h"
#include "train/vocabulary_tiles.h"

namespace dflash::train {

struct Vocabulary::Packed {
  VocabularyTiles tiles;
};

namespace {

constexpr int64_t kDefaultChunk = 256;
constexpr int64_t kIdsAtOnce = 4096;  // head rows widened to f32 at a time
constexpr int64_t kSmall = 1 << 15;   // values below which threads cost more than they save

at::ScalarType product_type(nn::Compute compute) {
  return compute == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat;
}

/// Softmax over rows of `logits_MV` in place, their statistics into `out` from row `first` on.
void softmax_rows(at::Tensor& logits_MV, int64_t first, VocabularyMean& out) {
  const int64_t columns = logits_MV.size(1), rows = logits_MV.size(0);
  const auto& kernels = kernels::row_kernels();
  float* data = logits_MV.data_ptr<float>();
  float* log_sum = out.log_sum_M.data_ptr<float>() + first;
  float* max = out.max_M.data_ptr<float>() + first;
  int64_t* argmax = out.argmax_M.data_ptr<int64_t>() + first;
#pragma omp parallel for schedule(static) if (rows * columns > kSmall)
  for (int64_t r = 0; r < rows; ++r) {
    kernels::OnlineRow state;
    float* row = data + r * columns;
    kernels.online_f32(row, columns, 0, state);
    kernels.scale(row, columns, 1.0F / state.sum);
    log_sum[r] = state.max + std::log(state.sum);
    max[r] = state.max;
    argmax[r] = state.argmax;
  }
}

/// NaN into the statistics of rows that are not finite: the kernels' exp does not carry it.
void spread_not_finite(const at::Tensor& hidden_MD, VocabularyMean& out) {
  const at::Tensor zero_or_nan_M = (hidden_MD * 0.0).sum(-1);
  out.mean_MD.add_(zero_or_nan_M.unsqueeze(-1));
  out.log_sum_M.add_(zero_or_nan_M);
  out.max_M.add_(zero_or_nan_M);
}

/// draft id -> target id must name every row of the head once.
at::Tensor inverse_ids(const at::Tensor& id_V, int64_t size) {
  const at::Tensor ids = id_V.to(at::kLong).contiguous().view({-1});
  if (ids.numel() != size || size == 0) {
    fail("loss: draft vocabulary: expected one target id for each of {} head rows, got {}", size,
         ids.numel());
  }
  if (const auto least = ids.min().item<int64_t>(); least < 0) {
    fail("loss: draft vocabulary: expected target ids >= 0, got {}", least);
  }
  std::vector<int64_t> sorted(ids.const_data_ptr<int64_t>(),
                              ids.const_data_ptr<int64_t>() + ids.numel());
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    fail("loss: draft vocabulary: expected every target id once, got {} twice", *twice);
  }
  at::Tensor draft_of_V = at::full({sorted.back() + 1}, -1, at::kLong);
  return draft_of_V.index_copy_(0, ids, at::arange(size, at::kLong));
}

}  // namespace

Vocabulary::Vocabulary(const nn::Head& head, nn::Compute compute) : compute_(compute) {
  DF_ASSERT(head.linear.weight.defined(), "a head without its plain weight");
  if (head.linear.bias.defined())
    fail("loss: head: expected no bias, got one\n  hint: it is not supported");
  at::Tensor weight_VD = head.linear.weight.detach();
  if (head.id_V.defined()) {
    draft_of_V_ = inverse_ids(head.id_V, weight_VD.size(0));
  } else if (head.num_ids > 0 && head.num_ids < weight_VD.size(0)) {
    weight_VD = weight_VD.narrow(0, 0, head.num_ids);  // nothing below knows of padding rows
  }
  weight_VD_ = weight_VD.to(product_type(compute)).contiguous();
  size_ = weight_VD_.size(0);
  hidden_ = weight_VD_.size(1);
  DF_ASSERT(size_ > 0, "an empty head");
  if (compute == nn::Compute::kBF16 && VocabularyTiles::supported(hidden_)) {
    packed_ = std::make_unique<const Packed>(Packed{VocabularyTiles(weight_VD_)});
  }
}

Vocabulary::~Vocabulary() = default;

std::string_view Vocabulary::method() const {
  return packed_ ? "amx tiles" : "chunks of logits";
}

VocabularyMean Vocabulary::mean(const at::Tensor& hidden_MD) const {
  nn::expect_shape(hidden_MD, {-1, hidden_}, "hidden rows of the loss");
  if (!packed_ || hidden_MD.size(0) == 0) return mean_by_chunks(hidden_MD, kDefaultChunk);
  VocabularyMean out = packed_->tiles.mean(hidden_MD);
  spread_not_finite(hidden_MD, out);
  return out;
}

VocabularyMean Vocabulary::mean_by_chunks(const at::Tensor& hidden_MD, int64_t chunk_rows) const {
  nn::expect_shape(hidden_MD, {-1, hidden_}, "hidden rows of the loss");
  DF_ASSERT(chunk_rows > 0, "chunk_rows={}", chunk_rows);
  const int64_t rows = hidden_MD.size(0);
  VocabularyMean out{at::empty({rows, hidden_}, at::kFloat), at::empty({rows}, at::kFloat),
                     at::empty({rows}, at::kLong), at::empty({rows}, at::kFloat)};
  for (int64_t first = 0; first < rows; first += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - first);
    at::Tensor scores_MV = logits(hidden_MD.narrow(0, first, count));
    softmax_rows(scores_MV, first, out);
    out.mean_MD.narrow(0, first, count).copy_(back(scores_MV));
  }
  spread_not_finite(hidden_MD, out);
  return out;
}

// bf16 weights are widened a part at a time: ATen's own bf16 products round their sums to bf16.
at::Tensor Vocabulary::logits(const at::Tensor& hidden_MD) const {
  const at::Tensor rows_MD = rounded(hidden_MD);
  if (compute_ == nn::Compute::kF32) return at::mm(rows_MD, weight_VD_.t());
  at::Tensor out_MV = at::empty({rows_MD.size(0), size_}, at::kFloat);
  for (int64_t first = 0; first < size_; first += kIdsAtOnce) {
    const int64_t count = std::min(kIdsAtOnce, size_ - first);
    const at::Tensor part_VD = weight_VD_.narrow(0, first, count).to(at::kFloat);
    at::Tensor part_MV = out_MV.narrow(1, first, count);
    at::mm_out(part_MV, rows_MD, part_VD.t());
  }
  return out_MV;
}

at::Tensor Vocabulary::back(const at::Tensor& grad_MV) const {
  nn::expect_shape(grad_MV, {-1, size_}, "gradients of logits");
  if (compute_ == nn::Compute::kF32) return at::mm(grad_MV, weight_VD_);
  at::Tensor out_MD = at::zeros({grad_MV.size(0), hidden_}, at::kFloat);
  for (int64_t first = 0; first < size_; first += kIdsAtOnce) {
    const int64_t count = std::min(kIdsAtOnce, size_ - first);
    out_MD.addmm_(grad_MV.narrow(1, first, count),
                  weight_VD_.narrow(0, first, count).to(at::kFloat));
  }
  return out_MD;
}

at::Tensor Vocabulary::rounded(const at::Tensor& hidden_MD) const {
  return hidden_MD.to(product_type(compute_)).to(at::kFloat);
}

at::Tensor Vocabulary::rows(const at::Tensor& id_M) const {
  return at::index_select(weight_VD_, 0, id_M).to(at::kFloat);
}

at::Tensor Vocabulary::draft_id(const at::Tensor& target_id) const {
  const int64_t known = draft_of_V_.defined() ? draft_of_V_.size(0) : size_;
  const at::Tensor inside = (target_id >= 0).logical_and(target_id < known);
  const at::Tensor safe = at::where(inside, target_id, at::zeros_like(target_id));
  const at::Tensor mapped = draft_of_V_.defined() ? draft_of_V_.take(safe) : safe;
  return at::where(inside, mapped, at::full_like(target_id, -1));
}

}  // namespace dflash::train
