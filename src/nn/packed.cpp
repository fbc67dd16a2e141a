#include "nn/packed.h"

#include <omp.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "nn/kernels/memory.h"
#include "nn/kernels/select.h"

namespace dflash::nn {

using namespace kernels;

namespace {

constexpr int64_t kSmallWork = 1 << 18;  // products below which a second thread costs more
constexpr int64_t kLeftBytes = 1 << 20;  // of packed rows at a time: half of a level-2 cache

/// Copies tile `tile` of the weight into its place. w: rows of `in` elements.
template <typename T>
void pack_tile_f32(const T* w, int64_t out, int64_t in, int64_t tile, int64_t step_stride,
                   float* to) {
  const int64_t columns = std::min(kTile, out - tile * kTile);
  for (int64_t c = 0; c < columns; ++c) {
    const T* from = w + (tile * kTile + c) * in;
    for (int64_t k = 0; k < in; ++k) to[k * step_stride + c] = static_cast<float>(from[k]);
  }
}

template <typename T>
void pack_tile_bf16(const T* w, int64_t out, int64_t in, int64_t tile, int64_t step_stride,
                    c10::BFloat16* to) {
  const int64_t columns = std::min(kTile, out - tile * kTile);
  for (int64_t c = 0; c < columns; ++c) {
    const T* from = w + (tile * kTile + c) * in;
    for (int64_t k = 0; k < in; ++k) {
      const int64_t at = k / kStepK * step_stride + k % kStepK / 2 * 2 * kTile + 2 * c + k % 2;
      to[at] = static_cast<c10::BFloat16>(from[k]);
    }
  }
}

/// Where tile `tile` begins and how far apart its steps are, in elements (bytes of records).
struct Place {
  int64_t offset, step_stride;
};
Place place_of(int64_t tile, int64_t num_tiles, int64_t steps, int64_t tile_elements,
               int64_t panel = kPanel) {
  const int64_t first = tile / panel * panel, width = std::min(panel, num_tiles - first);
  return {(first * steps + tile - first) * tile_elements, width * tile_elements};
}

/// Whether the lower half of every float is zero.
bool fits_bf16(const at::Tensor& weight_OI) {
  const float* w = weight_OI.const_data_ptr<float>();
  const int64_t count = weight_OI.numel();
  uint32_t lower = 0;
#pragma omp parallel for reduction(| : lower)
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, w + i, sizeof bits);
    lower |= bits & 0xffffU;
  }
  return lower == 0;
}

template <typename T>
void pack_all(const at::Tensor& weight_OI, bool wide, void* to) {
  const int64_t out = weight_OI.size(0), in = weight_OI.size(1);
  const T* w = weight_OI.const_data_ptr<T>();
  const int64_t num_tiles = (out + kTile - 1) / kTile;
#pragma omp parallel for
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    if (wide) {
      const Place place = place_of(tile, num_tiles, in, kTile);
      pack_tile_f32(w, out, in, tile, place.step_stride, static_cast<float*>(to) + place.offset);
    } else {
      const Place place = place_of(tile, num_tiles, steps_of(in), kTileBf16);
      pack_tile_bf16(w, out, in, tile, place.step_stride,
                     static_cast<c10::BFloat16*>(to) + place.offset);
    }
  }
}

}  // namespace

PackedWeight::PackedWeight(const at::Tensor& weight_OI, Compute compute)
    : in_(weight_OI.size(1)), out_(weight_OI.size(0)), compute_(compute) {
  const bool bf16 = weight_OI.scalar_type() == at::kBFloat16;
  const at::Tensor dense = weight_OI.detach().to(bf16 ? at::kBFloat16 : at::kFloat).contiguous();
  halves_ = compute == Compute::kBF16 || (in_ % kStepK == 0 && (bf16 || fits_bf16(dense)));
  const int64_t depth = is_wide() ? in_ * 4 : steps_of(in_) * kStepK * 2;
  bytes_ = round_up(out_, kTile) * depth;
  data_ = allocate_weights(static_cast<size_t>(bytes_));
  std::memset(data_.get(), 0, bytes_);
  if (bf16) {
    pack_all<c10::BFloat16>(dense, is_wide(), data_.get());
  } else {
    pack_all<float>(dense, is_wide(), data_.get());
  }
}

int64_t PackedWeight::num_tiles() const {
  return (out_ + kTile - 1) / kTile;
}

/// Tiles that lie side by side.
int64_t PackedWeight::panel() const {
  return blocks_.bits && !blocks_.lanes ? 2 : kPanel;
}

/// The product with tiles [tile, end) of one panel; left operand and result are still to be set.
Product PackedWeight::product(int64_t tile, int64_t end) const {
  Product p;
  p.columns = std::min(end * kTile, out_) - tile * kTile;
  if (blocks_.bits) {
    const int64_t record = blocks_.record_bytes(), steps = steps_of(in_);
    const Place place = place_of(tile, num_tiles(), steps, record, panel());
    p.b = static_cast<const char*>(data()) + place.offset;
    p.tile_stride = record, p.step_stride = place.step_stride, p.steps = steps;
    return p;
  }
  const int64_t size = is_wide() ? kTile : kTileBf16, steps = is_wide() ? in_ : steps_of(in_);
  const Place place = place_of(tile, num_tiles(), steps, size);
  p.b = static_cast<const char*>(data()) + place.offset * (is_wide() ? 4 : 2);
  p.tile_stride = size, p.step_stride = place.step_stride, p.steps = steps;
  return p;
}

void PackedWeight::run(const Product& p) const {
  const Kernels& k = current();
  if (blocks_.lanes) return k.product_f32_blocks(p, blocks_);
  if (blocks_.bits) return k.product_blocks(p, blocks_);
  if (packs_rows()) return k.product_bf16(p);
  halves_ ? k.product_f32_bf16(p) : k.product_f32(p);
}

namespace {

/// Calls work(tile, end) for every panel or part of one in this thread's share of the tiles.
template <typename Work>
void for_panels(int64_t num_tiles, int64_t panel, const Work& work) {
  const Share mine = share(num_tiles, 1, omp_get_thread_num(), omp_get_num_threads());
  for (int64_t tile = mine.begin; tile < mine.end;) {
    const int64_t end = std::min(mine.end, tile / panel * panel + panel);
    work(tile, end);
    tile = end;
  }
}

}  // namespace

/// Splits the first `tiles` tiles of columns over threads and rows into blocks that stay in cache;
/// calls work(product, first_row, tile) with everything set but the result.
template <typename Work>
void PackedWeight::for_products(const float* x, int64_t x_stride, int64_t rows, int64_t tiles,
                                const Work& work) const {
  const Kernels& k = current();
  const bool f32 = !packs_rows();
  const auto pack_as = [&](int64_t count) {  // `count` rows are multiplied in one go
    return blocks_.bits && count <= kFewRows ? k.pack_columns : k.pack_rows;
  };
  const int64_t row_bytes = f32 ? in_ * 4 : steps_of(in_) * kStepK * k.packed_row_bytes;
  const int64_t block = std::max<int64_t>(64, kLeftBytes / row_bytes / 32 * 32);
  void* left = f32 ? nullptr : scratch(0, round_up(std::min(block, rows), kTile) * row_bytes);
  const bool alone = f32 || rows <= kTile;  // so few rows are packed faster than threads meet
  if (!f32 && alone) pack_as(rows)(x, x_stride, rows, in_, left);
#pragma omp parallel if (out_ * in_ * rows > kSmallWork)
  {
    k.enter();
    for (int64_t first = 0; first < rows; first += block) {
      const int64_t count = std::min(block, rows - first);
      const float* from = x + first * x_stride;
      if (!alone) {
        // Nobody overwrites rows that another thread still multiplies.
#pragma omp barrier
        const Share mine = share(count, kTile, omp_get_thread_num(), omp_get_num_threads());
        char* to = static_cast<char*>(left) + mine.begin * row_bytes;
        pack_as(count)(from + mine.begin * x_stride, x_stride, mine.end - mine.begin, in_, to);
#pragma omp barrier
      }
      for_panels(tiles, panel(), [&](int64_t tile, int64_t end) {
        Product p = product(tile, end);
        p.a = f32 ? from : left, p.a_stride = x_stride, p.rows = count;
        if (blocks_.bits && count > kFewRows) p.work = scratch(10, block_work_bytes(p.steps));
        work(p, first, tile);
      });
    }
    k.leave();
  }
}

void PackedWeight::multiply(const float* x, int64_t x_stride, int64_t rows,
                            const Output& output) const {
  for_products(x, x_stride, rows, num_tiles(), [&](Product& p, int64_t first, int64_t tile) {
    p.c = output.y + first * output.y_stride + tile * kTile, p.c_stride = output.y_stride;
    p.bias = output.bias ? output.bias + tile * kTile : nullptr;
    p.add = output.add;
    run(p);
  });
}

void PackedWeight::multiply_swiglu(const float* x, int64_t x_stride, int64_t rows,
                                   const float* bias, float* y) const {
  DF_ASSERT(pairs(), "out={}", out_);
  const int64_t width = out_ / 2, half = width / kTile;
  for_products(x, x_stride, rows, half, [&](const Product& gate, int64_t first, int64_t tile) {
    const int64_t columns = gate.columns;
    auto* sums = static_cast<float*>(scratch(1, gate.rows * columns * 2 * sizeof(float)));
    for (const int64_t at : {tile, tile + half}) {
      Product p = product(at, at + columns / kTile);
      p.a = gate.a, p.a_stride = gate.a_stride, p.rows = gate.rows, p.work = gate.work;
      p.c = sums + (at == tile ? 0 : columns), p.c_stride = 2 * columns;
      p.bias = bias ? bias + at * kTile : nullptr;
      run(p);
    }
    for (int64_t r = 0; r < gate.rows; ++r) {
      current().swiglu(sums + r * 2 * columns, 1, columns, y + (first + r) * width + tile * kTile);
    }
  });
}

void PackedWeight::argmax(const float* x, int64_t x_stride, int64_t rows, const float* bias,
                          int64_t num_columns, int64_t* best) const {
  const Kernels& k = current();
  const Best nothing{-std::numeric_limits<float>::infinity(), 0};
  std::vector<std::vector<Best>> found(omp_get_max_threads());
  for_products(x, x_stride, rows, num_tiles(), [&](Product& p, int64_t first, int64_t tile) {
    constexpr int64_t kWidth = kPanel * kTile;
    std::vector<Best>& mine = found[omp_get_thread_num()];
    if (mine.empty()) mine.assign(rows, nothing);
    p.c = static_cast<float*>(scratch(1, p.rows * kWidth * sizeof(float))), p.c_stride = kWidth;
    p.bias = bias ? bias + tile * kTile : nullptr;
    run(p);
    const int64_t columns = std::min(p.columns, num_columns - tile * kTile);
    for (int64_t r = 0; r < p.rows && columns > 0; ++r) {
      k.argmax_row(p.c + r * kWidth, columns, tile * kTile, &mine[first + r]);
    }
  });
  for (int64_t r = 0; r < rows; ++r) {
    Best top = nothing;
    for (const std::vector<Best>& part : found) {
      // Threads have ascending columns, so a tie keeps the lowest.
      if (!part.empty() && part[r].value > top.value) top = part[r];
    }
    best[r] = top.index;
  }
}

}  // namespace dflash::nn
