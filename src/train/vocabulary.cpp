#include "train/vocabulary.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>

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
constexpr int64_t kSmall = 1 << 15;  // values below which threads cost more than they save

at::ScalarType product_type(nn::Compute compute) {
  return compute == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat;
}

/// Softmax over rows of `logits_MV` in place (exp unnormalised), statistics into `out` at `first`.
void softmax_rows(at::Tensor& logits_MV, int64_t num_ids, int64_t first, VocabularyMean& out) {
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
    kernels.online_f32(row, num_ids, 0, state);
    kernels.scale(row, num_ids, 1.0F / state.sum);
    std::fill(row + num_ids, row + columns, 0.0F);
    log_sum[r] = state.max + std::log(state.sum);
    max[r] = state.max;
    argmax[r] = state.argmax;
  }
}

}  // namespace

Vocabulary::Vocabulary(const nn::Head& head, nn::Compute compute) : compute_(compute) {
  DF_ASSERT(head.linear.weight.defined(), "a head without its plain weight");
  weight_VD_ = head.linear.weight.detach().to(product_type(compute)).contiguous();
  size_ = weight_VD_.size(0);
  hidden_ = weight_VD_.size(1);
  num_ids_ = head.num_ids > 0 && !head.id_V.defined() ? std::min(head.num_ids, size_) : size_;
  if (head.id_V.defined()) {
    const at::Tensor ids = head.id_V.to(at::kLong).contiguous();
    draft_of_V_ = at::full({ids.max().item<int64_t>() + 1}, -1, at::kLong);
    draft_of_V_.index_put_({ids}, at::arange(size_, at::kLong));
  }
  if (compute == nn::Compute::kBF16 && VocabularyTiles::supported(hidden_)) {
    packed_ = std::make_unique<const Packed>(Packed{VocabularyTiles(weight_VD_, num_ids_)});
  }
}

Vocabulary::~Vocabulary() = default;

std::string_view Vocabulary::method() const {
  return packed_ ? "amx tiles" : "chunks of logits";
}

VocabularyMean Vocabulary::mean(const at::Tensor& hidden_MD) const {
  nn::expect_shape(hidden_MD, {-1, hidden_}, "hidden rows of the loss");
  if (packed_ && hidden_MD.size(0) > 0) return packed_->tiles.mean(hidden_MD);
  return mean_by_chunks(hidden_MD, kDefaultChunk);
}

VocabularyMean Vocabulary::mean_by_chunks(const at::Tensor& hidden_MD, int64_t chunk_rows) const {
  const int64_t rows = hidden_MD.size(0);
  VocabularyMean out{at::empty({rows, hidden_}, at::kFloat), at::empty({rows}, at::kFloat),
                     at::empty({rows}, at::kLong), at::empty({rows}, at::kFloat)};
  for (int64_t first = 0; first < rows; first += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - first);
    at::Tensor scores_MV = logits(hidden_MD.narrow(0, first, count));
    softmax_rows(scores_MV, num_ids_, first, out);
    out.mean_MD.narrow(0, first, count).copy_(back(scores_MV));
  }
  return out;
}

at::Tensor Vocabulary::logits(const at::Tensor& hidden_MD) const {
  return at::mm(hidden_MD.to(product_type(compute_)), weight_VD_.t()).to(at::kFloat);
}

at::Tensor Vocabulary::back(const at::Tensor& grad_MV) const {
  return at::mm(grad_MV.to(product_type(compute_)), weight_VD_).to(at::kFloat);
}

at::Tensor Vocabulary::rounded(const at::Tensor& hidden_MD) const {
  return hidden_MD.to(product_type(compute_)).to(at::kFloat);
}

at::Tensor Vocabulary::rows(const at::Tensor& id_M) const {
  return at::index_select(weight_VD_, 0, id_M).to(at::kFloat);
}

at::Tensor Vocabulary::draft_id(const at::Tensor& target_id) const {
  const int64_t known = draft_of_V_.defined() ? draft_of_V_.size(0) : num_ids_;
  const at::Tensor inside = (target_id >= 0).logical_and(target_id < known);
  const at::Tensor safe = at::where(inside, target_id, at::zeros_like(target_id));
  const at::Tensor mapped = draft_of_V_.defined() ? draft_of_V_.index({safe}) : safe;
  return at::where(inside, mapped, at::full_like(target_id, -1));
}

}  // namespace dflash::train
