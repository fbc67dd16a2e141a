// Attention over cached keys as two products and a softmax for every chunk of 128 keys.
//
// Chunks begin at multiples of 128 storage rows, whatever a row sees of them, and each yields
// (largest score, sum of weights, weighted values); a row's chunks are merged in key order. Rows of
// one sequence and the query heads of one kv head share each chunk, but no row's numbers depend on
// the others: keys that it does not see have weight exactly 0.
//
// Rows of a tree share the chunks too. A score does not depend on its key's place, the sums after
// it do: so the scores of a row's own way are moved to the places of a chain, and each way has the
// values of the last chunks at these places in a copy.
#include "nn/attention.h"

#include <ATen/ops/zeros.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "nn/kernels/select.h"
#include "nn/shapes.h"

namespace dflash::nn {
namespace {

using namespace kernels;

constexpr int64_t kChunk = KvBuffer::kChunk;
constexpr int64_t kRowBlock = 16;  // rows that share each chunk

/// Consecutive rows over the same buffers, and one kv head.
struct Item {
  int64_t first_row, num_rows, kv_head;
};

/// One chunk of one range of an item.
struct Task {
  int64_t item, range, first_key;
};

/// What the keys visited so far say, as merge_rows wants it: peaks, sums, values [M, width].
struct Partial {
  float *peak, *sum, *values;
  static int64_t floats(int64_t vectors, int64_t width) { return vectors * (width + 2); }
  Partial(float* memory, int64_t vectors)
      : peak(memory), sum(memory + vectors), values(memory + 2 * vectors) {}
};

class Attention {
 public:
  Attention(const at::Tensor& q_RHE, std::span<const RowKeys> keys, float* out);
  void run();

 private:
  void list_items();
  void list_tasks(int64_t item);
  void expect_branch(const RowKeys& row);
  bool same_buffers(int64_t a, int64_t b) const;
  bool non_finite(int64_t row) const;

  const void* pack_queries(const Item& item) const;
  int64_t stored_end(int64_t row, int64_t range) const;
  int64_t score(const Task& task, const void* queries, float* scores) const;
  void weigh(const Task& task, float* scores, int64_t columns, const Partial& to) const;
  void visit(const Task& task, const void* queries, const Partial& to) const;
  void add_values(const Task& task, int64_t first_row, int64_t num_rows, const float* scores,
                  int64_t columns, const Partial& to) const;
  const void* values_of(const Task& task, int64_t row, int64_t columns) const;
  void finish(const Item& item, const Partial& all) const;
  void run_items() const;
  void run_tasks() const;

  int64_t vectors(const Item& item) const { return item.num_rows * share_; }
  Partial scratch_partial(int slot, int64_t vectors) const {
    const size_t bytes = Partial::floats(vectors, width_) * sizeof(float);
    return {static_cast<float*>(scratch(slot, bytes)), vectors};
  }

  const Kernels& kernels_ = current();
  at::Tensor q_;
  std::span<const RowKeys> keys_;
  float* out_;
  int64_t heads_, dim_, kv_heads_ = 0, share_ = 0, depth_ = 0, width_ = 0;
  int64_t score_stride_ = kChunk;  // more where ways through a tree lead past a chunk
  bool f32_ = true;
  bool small_ = true;  // too little work for a second thread
  std::vector<Item> items_;
  std::vector<Task> tasks_;
  std::vector<int64_t> first_task_;  // of every item, and the end
};

Attention::Attention(const at::Tensor& q_RHE, std::span<const RowKeys> keys, float* out)
    : keys_(keys), out_(out), heads_(q_RHE.size(1)), dim_(q_RHE.size(2)) {
  const bool rows = q_RHE.stride(2) == 1 && q_RHE.stride(1) == dim_;
  q_ = rows && q_RHE.scalar_type() == at::kFloat ? q_RHE : q_RHE.to(at::kFloat).contiguous();
  const KvBuffer* first = nullptr;
  for (const RowKeys& row : keys) {
    for (const KeyRange& range : row.ranges) {
      if (range.begin >= range.end) continue;
      const KvBuffer& buffer = *range.buffer;
      if (!first) first = &buffer;
      DF_ASSERT(buffer.kv_heads() == first->kv_heads() && buffer.head_dim() == dim_ &&
                    buffer.storage() == first->storage(),
                "buffers of one call differ, or head_dim {} is not {}", buffer.head_dim(), dim_);
      DF_ASSERT(range.begin >= 0 && range.end <= buffer.capacity(), "keys {}..{} of {}",
                range.begin, range.end, buffer.capacity());
    }
    if (row.branch) expect_branch(row);
  }
  if (!first) return;
  kv_heads_ = first->kv_heads(), f32_ = first->storage() == Compute::kF32;
  DF_ASSERT(heads_ % kv_heads_ == 0, "{} query heads, {} kv heads", heads_, kv_heads_);
  share_ = heads_ / kv_heads_, depth_ = first->key_depth(), width_ = first->value_width();
  list_items();
}

void Attention::expect_branch(const RowKeys& row) {
  const KeyRange& range = row.ranges[0];
  const Branch& branch = *row.branch;
  const int64_t length = range.end - branch.first;
  DF_ASSERT(branch.first >= 0 && length > 0 && length <= static_cast<int64_t>(branch.rows.size()),
            "{} keys from {}, {} in the branch", length, branch.first, branch.rows.size());
  DF_ASSERT(std::is_sorted(branch.rows.begin(), branch.rows.end()) &&
                branch.rows.front() >= branch.first &&
                branch.rows.back() < range.buffer->capacity(),
            "branch rows {}..{} of {}", branch.rows.front(), branch.rows.back(),
            range.buffer->capacity());
  const int64_t stored = branch.rows.back() + 1 - branch.first / kChunk * kChunk;
  score_stride_ = std::max(score_stride_, round_up(stored, kStepK));
}

bool Attention::same_buffers(int64_t a, int64_t b) const {
  for (int i = 0; i < 2; ++i) {
    if (keys_[a].ranges[i].buffer != keys_[b].ranges[i].buffer) return false;
  }
  return true;
}

bool Attention::non_finite(int64_t row) const {
  for (const KeyRange& range : keys_[row].ranges) {
    if (range.begin < range.end && range.buffer->has_non_finite()) return true;
  }
  return false;
}

void Attention::list_items() {
  const int64_t rows = static_cast<int64_t>(keys_.size());
  for (int64_t first = 0; first < rows;) {
    int64_t count = 1;
    // A row over non-finite values stays alone: what it does not see is cut out for it.
    while (!non_finite(first) && count < kRowBlock && first + count < rows &&
           same_buffers(first, first + count) && !non_finite(first + count)) {
      ++count;
    }
    for (int64_t g = 0; g < kv_heads_; ++g) {
      items_.push_back({first, count, g});
      list_tasks(static_cast<int64_t>(items_.size()) - 1);
    }
    first += count;
  }
  first_task_.push_back(static_cast<int64_t>(tasks_.size()));
}

void Attention::list_tasks(int64_t item_idx) {
  const Item& item = items_[item_idx];
  first_task_.push_back(static_cast<int64_t>(tasks_.size()));
  for (int64_t range = 0; range < 2; ++range) {
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    for (int64_t r = item.first_row; r < item.first_row + item.num_rows; ++r) {
      const KeyRange& seen = keys_[r].ranges[range];
      if (seen.begin >= seen.end) continue;
      begin = std::min(begin, seen.begin), end = std::max(end, seen.end);
    }
    for (int64_t key = begin / kChunk * kChunk; key < end; key += kChunk) {
      tasks_.push_back({item_idx, range, key});
    }
  }
}

/// Scaled queries of the item, M = rows x sharing heads, as the left operand of a product.
const void* Attention::pack_queries(const Item& item) const {
  const int64_t count = vectors(item);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim_));
  auto* rows = static_cast<float*>(scratch(2, count * dim_ * sizeof(float)));
  float* to = rows;
  for (int64_t r = item.first_row; r < item.first_row + item.num_rows; ++r) {
    const float* from =
        q_.const_data_ptr<float>() + r * q_.stride(0) + item.kv_head * share_ * dim_;
    for (int64_t i = 0; i < share_ * dim_; ++i) *to++ = from[i] * scale;
  }
  if (f32_) return rows;
  void* packed = scratch(3, round_up(count, kTile) * depth_ * kernels_.packed_row_bytes);
  kernels_.pack_rows(rows, dim_, count, dim_, packed);
  return packed;
}

/// Past the last storage row that the row's range reads.
int64_t Attention::stored_end(int64_t row, int64_t range) const {
  const RowKeys& keys = keys_[row];
  const KeyRange& seen = keys.ranges[range];
  if (range > 0 || !keys.branch || seen.end <= keys.branch->first) return seen.end;
  return keys.branch->rows[seen.end - keys.branch->first - 1] + 1;
}

/// Scores of the item's vectors with the stored keys from the chunk's first on: a chunk's, or where
/// a way leads further, all up to there. Returns the distance between vectors.
int64_t Attention::score(const Task& task, const void* queries, float* scores) const {
  const Item& item = items_[task.item];
  const KvBuffer& buffer = *keys_[item.first_row].ranges[task.range].buffer;
  int64_t columns = 0;
  for (int64_t r = item.first_row; r < item.first_row + item.num_rows; ++r) {
    const bool branches =
        task.range == 0 && keys_[r].branch && keys_[r].branch->first < task.first_key + kChunk;
    const int64_t stored = stored_end(r, task.range) - task.first_key;
    columns = std::max(columns, branches ? stored : std::min(kChunk, stored));
  }
  columns = round_up(columns, kStepK);
  Product p;
  p.a = queries, p.a_stride = dim_;
  p.b = buffer.key_chunk(item.kv_head, task.first_key);
  p.tile_stride = depth_ * kTile, p.step_stride = f32_ ? kTile : kTileBf16;
  p.steps = f32_ ? depth_ : depth_ / kStepK;
  p.rows = vectors(item), p.columns = columns, p.c = scores, p.c_stride = score_stride_;
  (f32_ ? kernels_.product_f32 : kernels_.product_bf16)(p);
  return std::min(kChunk, columns);
}

/// Scores into weights, in the order of the chain's keys; `columns` of them are defined after it.
void Attention::weigh(const Task& task, float* scores, int64_t columns, const Partial& to) const {
  const Item& item = items_[task.item];
  for (int64_t m = 0; m < vectors(item); ++m) {
    const RowKeys& keys = keys_[item.first_row + m / share_];
    const KeyRange& seen = keys.ranges[task.range];
    const int64_t end = std::min(kChunk, seen.end - task.first_key);
    float* row = scores + m * score_stride_;
    if (task.range == 0 && keys.branch) {
      for (int64_t j = std::max<int64_t>(0, keys.branch->first - task.first_key); j < end; ++j) {
        row[j] = row[keys.branch->rows[task.first_key + j - keys.branch->first] - task.first_key];
      }
    }
    kernels_.softmax_row(row, columns, std::max<int64_t>(0, seen.begin - task.first_key), end,
                         to.peak + m, to.sum + m);
  }
}

/// The first `columns` values of the task's chunk at the places where `row` has them: the buffer's
/// own, or a copy. What a row alone does not see is cut out when it may not be finite.
const void* Attention::values_of(const Task& task, int64_t row, int64_t columns) const {
  const KeyRange& seen = keys_[row].ranges[task.range];
  const KvBuffer& buffer = *seen.buffer;
  const int64_t kv_head = items_[task.item].kv_head;
  const Branch* branch = task.range == 0 ? keys_[row].branch : nullptr;
  const void* stored = buffer.value_chunk(kv_head, task.first_key);
  const bool branches = branch && branch->first < task.first_key + columns;
  if (!branches && !buffer.has_non_finite()) return stored;
  const int64_t bytes = columns * width_ * (f32_ ? 4 : 2);
  void* copy = scratch(4, bytes);
  std::memcpy(copy, stored, bytes);
  if (branches) {
    const int64_t end = branch->first + static_cast<int64_t>(branch->rows.size());
    const int64_t first = std::max(branch->first, task.first_key);
    for (int64_t key = first; key < std::min(end, task.first_key + columns); ++key) {
      buffer.copy_value(kv_head, branch->rows[key - branch->first], copy, key - task.first_key);
    }
  }
  if (!buffer.has_non_finite()) return copy;
  for (int64_t key = 0; key < columns; ++key) {
    if (task.first_key + key >= seen.begin && task.first_key + key < seen.end) continue;
    for (int64_t e = 0; e < dim_; ++e) {
      const int64_t at = buffer.value_index(key, e);
      f32_ ? static_cast<float*>(copy)[at] = 0 : static_cast<uint16_t*>(copy)[at] = 0;
    }
  }
  return copy;
}

/// Weighted values of rows that have the same keys at the same places.
void Attention::add_values(const Task& task, int64_t first_row, int64_t num_rows,
                           const float* scores, int64_t columns, const Partial& to) const {
  const int64_t first = (first_row - items_[task.item].first_row) * share_;
  Product weighted;
  weighted.rows = num_rows * share_, weighted.columns = width_;
  weighted.a = scores + first * score_stride_, weighted.a_stride = score_stride_;
  if (!f32_) {
    void* packed = scratch(6, round_up(weighted.rows, kTile) * kChunk * kernels_.packed_row_bytes);
    kernels_.pack_rows(scores + first * score_stride_, score_stride_, weighted.rows, columns,
                       packed);
    weighted.a = packed;
  }
  weighted.b = values_of(task, first_row, columns);
  weighted.tile_stride = f32_ ? kTile : kTileBf16;
  weighted.step_stride = f32_ ? width_ : width_ / kTile * kTileBf16;
  weighted.steps = f32_ ? columns : columns / kStepK;
  weighted.c = to.values + first * width_, weighted.c_stride = width_;
  (f32_ ? kernels_.product_f32 : kernels_.product_bf16)(weighted);
}

void Attention::visit(const Task& task, const void* queries, const Partial& to) const {
  const Item& item = items_[task.item];
  auto* scores = static_cast<float*>(scratch(5, vectors(item) * score_stride_ * sizeof(float)));
  const int64_t columns = score(task, queries, scores);
  weigh(task, scores, columns, to);
  const int64_t end = item.first_row + item.num_rows;
  const auto way = [&](int64_t row) {
    const Branch* branch = task.range == 0 ? keys_[row].branch : nullptr;
    return branch && branch->first < task.first_key + kChunk ? branch : nullptr;
  };
  for (int64_t row = item.first_row; row < end;) {
    int64_t next = row + 1;
    while (next < end && way(next) == way(row)) ++next;
    add_values(task, row, next - row, scores, columns, to);
    row = next;
  }
}

void Attention::finish(const Item& item, const Partial& all) const {
  for (int64_t m = 0; m < vectors(item); ++m) {
    const int64_t row = item.first_row + m / share_, head = item.kv_head * share_ + m % share_;
    float* to = out_ + (row * heads_ + head) * dim_;
    if (all.sum[m] == 0) {
      std::fill(to, to + dim_, 0.0F);
      continue;
    }
    const float inverse = 1 / all.sum[m];
    const float* from = all.values + m * width_;
    for (int64_t e = 0; e < dim_; ++e) to[e] = from[e] * inverse;
  }
}

/// Enough items for every thread: each walks its chunks by itself.
void Attention::run_items() const {
  const int64_t num_items = static_cast<int64_t>(items_.size());
#pragma omp parallel if (!small_)
  {
    kernels_.enter();
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < num_items; ++i) {
      const Item& item = items_[i];
      const void* queries = pack_queries(item);
      const Partial all = scratch_partial(7, vectors(item));
      const Partial part = scratch_partial(8, vectors(item));
      std::fill(all.sum, all.sum + vectors(item), 0.0F);
      for (int64_t t = first_task_[i]; t < first_task_[i + 1]; ++t) {
        visit(tasks_[t], queries, part);
        kernels_.merge_rows(part.peak, all.peak, vectors(item), width_);
      }
      finish(item, all);
    }
    kernels_.leave();
  }
}

/// Few items over many keys: chunks are shared out, then merged in the same order.
void Attention::run_tasks() const {
  const int64_t num_tasks = static_cast<int64_t>(tasks_.size());
  int64_t most = 0;
  for (const Item& item : items_) most = std::max(most, vectors(item));
  const int64_t floats = round_up(Partial::floats(most, width_), 16);
  auto* memory = static_cast<float*>(scratch(9, num_tasks * floats * sizeof(float)));
#pragma omp parallel
  {
    kernels_.enter();
#pragma omp for schedule(dynamic, 1)
    for (int64_t t = 0; t < num_tasks; ++t) {
      const Item& item = items_[tasks_[t].item];
      visit(tasks_[t], pack_queries(item), {memory + t * floats, vectors(item)});
    }
    kernels_.leave();
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    const Partial all = scratch_partial(7, vectors(items_[i]));
    std::fill(all.sum, all.sum + vectors(items_[i]), 0.0F);
    for (int64_t t = first_task_[i]; t < first_task_[i + 1]; ++t) {
      kernels_.merge_rows(memory + t * floats, all.peak, vectors(items_[i]), width_);
    }
    finish(items_[i], all);
  }
}

void Attention::run() {
  if (items_.empty()) return;
  constexpr int64_t kWorthAThread = 1 << 19;  // products
  int64_t work = 0;
  for (const Task& task : tasks_) work += vectors(items_[task.item]) * kChunk * width_;
  small_ = omp_in_parallel() || work < kWorthAThread;
  const int64_t threads = small_ ? 1 : omp_get_max_threads();
  const bool few = static_cast<int64_t>(items_.size()) < 2 * threads;
  few&& threads > 1 && tasks_.size() >= 2 * items_.size() ? run_tasks() : run_items();
}

}  // namespace

at::Tensor attend(const at::Tensor& q_RHE, std::span<const RowKeys> keys) {
  expect_shape(q_RHE, {static_cast<int64_t>(keys.size()), -1, -1}, "queries");
  at::Tensor out = at::zeros({q_RHE.size(0), q_RHE.size(1) * q_RHE.size(2)}, at::kFloat);
  Attention(q_RHE, keys, out.mutable_data_ptr<float>()).run();
  return out;
}

}  // namespace dflash::nn
