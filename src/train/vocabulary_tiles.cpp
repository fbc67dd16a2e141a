#include "train/vocabulary_tiles.h"

#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/compute.h"
#include "train/kernels/rows.h"
#include "train/vocabulary.h"

namespace dflash::train {
namespace {

constexpr int64_t kTileIds = 256;  // ids whose two packed forms (2 * 256 * D * 2 bytes) stay in L2
constexpr int64_t kBlock = 32;     // columns of one packed block
constexpr int64_t kRows = 64;      // rows of one product

using BF16 = at::BFloat16;

/// [K, N] values read through `at` -> [K / 2][N][2].
template <typename At>
void pack_block(int64_t k_size, int64_t n_size, At&& at, BF16* out) {
  for (int64_t k = 0; k < k_size; k += 2) {
    for (int64_t n = 0; n < n_size; ++n) {
      out[(k / 2 * n_size + n) * 2] = at(k, n);
      out[(k / 2 * n_size + n) * 2 + 1] = at(k + 1, n);
    }
  }
}

}  // namespace

/// What one thread gathers over its share of the vocabulary, for all rows.
struct VocabularyTiles::Worker {
  std::vector<kernels::OnlineRow> rows;
  at::Tensor mean_MD;  // f32, scaled by exp(-max) and not yet divided by the sum
  at::Tensor scores, weights;
};

bool VocabularyTiles::supported(int64_t hidden) {
  return nn::cpu_isa() == nn::Isa::kAmx && at::native::cpublas::could_pack(at::kBFloat16) &&
         hidden % kBlock == 0;
}

VocabularyTiles::VocabularyTiles(const at::Tensor& weight_VD)
    : num_ids_(weight_VD.size(0)), hidden_(weight_VD.size(1)) {
  num_tiles_ = (num_ids_ + kTileIds - 1) / kTileIds;
  const int64_t size = num_tiles_ * kTileIds * hidden_;
  for_scores_ = at::empty({size}, at::kBFloat16);
  for_mean_ = at::empty({size}, at::kBFloat16);
  const BF16* weight = weight_VD.const_data_ptr<BF16>();
  BF16* scores = for_scores_.data_ptr<BF16>();
  BF16* mean = for_mean_.data_ptr<BF16>();
#pragma omp parallel for schedule(static)
  for (int64_t tile = 0; tile < num_tiles_; ++tile) {
    const int64_t first = tile * kTileIds;
    const auto value = [&](int64_t id, int64_t column) {
      return id < num_ids_ ? weight[id * hidden_ + column] : BF16(0.0F);
    };
    for (int64_t n = 0; n < kTileIds; n += kBlock) {
      pack_block(
          hidden_, kBlock, [&](int64_t k, int64_t i) { return value(first + n + i, k); },
          scores + (first + n) * hidden_);
    }
    for (int64_t n = 0; n < hidden_; n += kBlock) {
      pack_block(
          kTileIds, kBlock, [&](int64_t k, int64_t i) { return value(first + k, n + i); },
          mean + first * hidden_ + n * kTileIds);
    }
  }
}

void VocabularyTiles::walk(const at::Tensor& rows_MD, int64_t first_tile, int64_t last_tile,
                           Worker& worker) const {
  namespace blas = at::native::cpublas;
  const auto& kernels = kernels::row_kernels();
  const int64_t count = rows_MD.size(0);
  const BF16* rows = rows_MD.const_data_ptr<BF16>();
  float* mean = worker.mean_MD.data_ptr<float>();
  float* scores = worker.scores.data_ptr<float>();
  BF16* weights = worker.weights.data_ptr<BF16>();
  for (int64_t tile = first_tile; tile < last_tile; ++tile) {
    const int64_t first_id = tile * kTileIds, ids = std::min(kTileIds, num_ids_ - first_id);
    const BF16* key = for_scores_.const_data_ptr<BF16>() + first_id * hidden_;
    const BF16* value = for_mean_.const_data_ptr<BF16>() + first_id * hidden_;
    if (ids < kTileIds) std::fill_n(weights, kRows * kTileIds, BF16(0.0F));
    for (int64_t m = 0; m < count; m += kRows) {
      const int64_t height = std::min(kRows, count - m);
      for (int64_t n = 0; n < kTileIds; n += kBlock) {
        blas::brgemm(height, kBlock, hidden_, hidden_, kBlock, kTileIds, false, rows + m * hidden_,
                     key + n * hidden_, scores + n, true);
      }
      for (int64_t r = 0; r < height; ++r) {
        const float factor =
            kernels.online_bf16(scores + r * kTileIds, ids, first_id, worker.rows[m + r],
                                reinterpret_cast<uint16_t*>(weights + r * kTileIds));
        if (factor != 1.0F) kernels.scale(mean + (m + r) * hidden_, hidden_, factor);
      }
      for (int64_t n = 0; n < hidden_; n += kBlock) {
        blas::brgemm(height, kBlock, kTileIds, kTileIds, kBlock, hidden_, true, weights,
                     value + n * kTileIds, mean + m * hidden_ + n, true);
      }
    }
  }
  blas::brgemm_release();
}

VocabularyMean VocabularyTiles::mean(const at::Tensor& hidden_MD) const {
  const int64_t count = hidden_MD.size(0);
  const at::Tensor rows_MD = hidden_MD.to(at::kBFloat16).contiguous();
  std::vector<Worker> workers(static_cast<size_t>(nn::num_threads()));
  const int64_t share = (num_tiles_ + workers.size() - 1) / workers.size();
  for (Worker& worker : workers) {
    worker.rows.resize(static_cast<size_t>(count));
    worker.mean_MD = at::zeros({count, hidden_}, at::kFloat);
    worker.scores = at::empty({kRows, kTileIds}, at::kFloat);
    worker.weights = at::zeros({kRows, kTileIds}, at::kBFloat16);
  }
#pragma omp parallel for schedule(static, 1)
  for (int64_t w = 0; w < static_cast<int64_t>(workers.size()); ++w) {
    walk(rows_MD, std::min(w * share, num_tiles_), std::min((w + 1) * share, num_tiles_),
         workers[w]);
  }
  VocabularyMean out{at::empty({count, hidden_}, at::kFloat), at::empty({count}, at::kFloat),
                     at::empty({count}, at::kLong), at::empty({count}, at::kFloat)};
  float* mean = out.mean_MD.data_ptr<float>();
  // Shares of the vocabulary are merged in the order of their ids, so the lowest id wins ties.
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < count; ++r) {
    kernels::OnlineRow total;
    for (const Worker& worker : workers) {
      if (worker.rows[r].max > total.max) {
        total.max = worker.rows[r].max;
        total.argmax = worker.rows[r].argmax;
      }
    }
    float* to = mean + r * hidden_;
    std::fill_n(to, hidden_, 0.0F);
    for (const Worker& worker : workers) {
      const float factor = std::exp(worker.rows[r].max - total.max);
      const float* from = worker.mean_MD.const_data_ptr<float>() + r * hidden_;
      total.sum += worker.rows[r].sum * factor;
      for (int64_t i = 0; i < hidden_; ++i) to[i] += from[i] * factor;
    }
    for (int64_t i = 0; i < hidden_; ++i) to[i] /= total.sum;
    out.log_sum_M.data_ptr<float>()[r] = total.max + std::log(total.sum);
    out.argmax_M.data_ptr<int64_t>()[r] = total.argmax;
    out.max_M.data_ptr<float>()[r] = total.max;
  }
  return out;
}

}  // namespace dflash::train
