#include "nn/gemm_bf16.h"

#include <ATen/ops/empty.h>
#include <omp.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/profile.h"
#include "nn/kernels/select.h"
#include "nn/kernels/tiles.h"
#include "nn/shapes.h"

namespace dflash::nn {
namespace {

using namespace kernels;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr int64_t kLeftBytes = 1 << 20;  // of the left operand at a time: half of a level-2 cache
constexpr int64_t kStepsAtOnce = 16;     // two right tiles of so many steps: 32 KB of level 1
constexpr int64_t kSmallWork = 1 << 14;  // values below which a second thread costs more

uint16_t* data_of(const at::Tensor& bf16) {
  return reinterpret_cast<uint16_t*>(bf16.mutable_data_ptr<at::BFloat16>());
}

bool is_dense(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1;
}

TileSource source_of(const at::Tensor& x) {
  DF_ASSERT(x.dim() == 2 && is_dense(x), "{} dimensions, last stride {}", x.dim(),
            x.dim() ? x.stride(-1) : 0);
  const bool bf16 = x.scalar_type() == at::kBFloat16;
  DF_ASSERT(bf16 || x.scalar_type() == at::kFloat, "operand of {}", at::toString(x.scalar_type()));
  return {x.const_data_ptr(), bf16, x.stride(0), x.size(0), x.size(1)};
}

/// work(share) over the blocks of an operand, by threads.
template <typename Work>
void for_shares(const TileOperand& operand, const Work& work) {
  const int64_t blocks = (operand.rows + kTile - 1) / kTile;
#pragma omp parallel if (operand.rows * operand.k > kSmallWork)
  {
    const Share mine = share(blocks, 2, omp_get_thread_num(), omp_get_num_threads());
    if (mine.begin < mine.end) work(TileShare{mine.begin, mine.end});
  }
}

using Pack = void (*)(const TileSource&, TileShare, uint16_t*);

TileOperand pack(const at::Tensor& x, int64_t rows, int64_t k, Pack run) {
  TileOperand out{at::empty({tile_elements(rows, k)}, at::kBFloat16), rows, k};
  const TileSource source = source_of(x);
  for_shares(out, [&](TileShare mine) { run(source, mine, data_of(out.data)); });
  return out;
}

/// One thread's part of a product, in blocks that stay in its cache. `below`: column n wants rows
/// up to n + below only.
constexpr int64_t kAllRows = int64_t{1} << 40;
void multiply_part(TileProduct whole, int64_t steps, int64_t below = kAllRows) {
  const int64_t block = kTile * steps * kStepK * 2;
  const int64_t rows_at_once = std::max<int64_t>(2, kLeftBytes / block / 2 * 2) * kTile;
  for (int64_t row = 0; row < whole.rows; row += rows_at_once) {
    for (int64_t column = 0; column < whole.columns; column += 2 * kTile) {
      const int64_t end = std::min(whole.rows, column + 2 * kTile + below);
      if (end <= row) continue;
      for (int64_t step = 0; step < steps; step += kStepsAtOnce) {
        TileProduct p = whole;
        p.rows = std::min(rows_at_once, end - row);
        p.columns = std::min(2 * kTile, whole.columns - column);
        p.steps = std::min(kStepsAtOnce, steps - step);
        p.left += row / kTile * p.left_block + step * kTileBf16;
        p.right += column / kTile * p.right_tile + step * kTileBf16;
        p.c += row * p.c_stride + column;
        p.add = whole.add || step > 0;
        kTileKernels.product(p);
      }
    }
  }
}

}  // namespace

bool tile_products_supported(Compute compute) {
  return compute == Compute::kBF16 && cpu_isa() == Isa::kAmx;
}

TileOperand left_operand(const at::Tensor& x_RK) {
  return pack(x_RK, x_RK.size(0), x_RK.size(1), kTileKernels.left);
}
TileOperand left_operand_of_transposed(const at::Tensor& x_KR) {
  return pack(x_KR, x_KR.size(1), x_KR.size(0), kTileKernels.left_transposed);
}
TileOperand right_operand(const at::Tensor& x_KR) {
  return pack(x_KR, x_KR.size(1), x_KR.size(0), kTileKernels.right);
}
TileOperand right_operand_of_transposed(const at::Tensor& x_RK) {
  return pack(x_RK, x_RK.size(0), x_RK.size(1), kTileKernels.right_transposed);
}

TileOperand right_operand_of_left(const TileOperand& left) {
  TileOperand out{at::empty({tile_elements(left.k, left.rows)}, at::kBFloat16), left.k, left.rows};
  for_shares(out, [&](TileShare mine) {
    kTileKernels.right_of_left(data_of(left.data), left.rows, left.k, mine, data_of(out.data));
  });
  return out;
}

namespace {

/// Checked, with everything set but c's increment.
TileProduct product_of(const TileOperand& left, const TileOperand& right, at::Tensor& c) {
  DF_ASSERT(left.k == right.k, "k {} and {}", left.k, right.k);
  expect_shape(c, {left.rows, right.rows}, "product");
  DF_ASSERT(is_dense(c) && c.scalar_type() == at::kFloat, "last stride {}", c.stride(1));
  const int64_t steps = steps_of(left.k);
  return {.left = data_of(left.data),
          .right = data_of(right.data),
          .left_block = steps * kTileBf16,
          .right_tile = steps * kTileBf16,
          .steps = steps,
          .rows = left.rows,
          .columns = right.rows,
          .c = c.mutable_data_ptr<float>(),
          .c_stride = c.stride(0)};
}

/// The same without the columns (rows) before and after a share.
TileProduct columns_of(TileProduct p, Share mine) {
  p.right += mine.begin / kTile * p.right_tile, p.c += mine.begin;
  p.columns = mine.end - mine.begin;
  return p;
}
TileProduct rows_of(TileProduct p, Share mine) {
  p.left += mine.begin / kTile * p.left_block, p.c += mine.begin * p.c_stride;
  p.rows = mine.end - mine.begin;
  return p;
}

}  // namespace

void multiply_symmetric_tiles(const TileOperand& left, const TileOperand& right, at::Tensor& c) {
  const TileProduct whole = product_of(left, right, c);
  DF_ASSERT(left.rows == right.rows, "{} rows, {} columns", left.rows, right.rows);
  constexpr int64_t kStrip = 2 * kTile;
  const int64_t strips = (whole.columns + kStrip - 1) / kStrip;
#pragma omp parallel if (whole.rows * whole.columns > kSmallWork)
  {
    kTileKernels.enter();
    // Strip s has s + 1 blocks: the first with the last, the second with the last but one.
#pragma omp for schedule(static)
    for (int64_t pair = 0; pair < (strips + 1) / 2; ++pair) {
      for (const int64_t strip : {pair, strips - 1 - pair}) {
        const int64_t begin = strip * kStrip;
        const Share mine{begin, std::min(begin + kStrip, whole.columns)};
        multiply_part(columns_of(whole, mine), whole.steps, begin);
        if (2 * pair == strips - 1) break;
      }
    }
    kTileKernels.leave();
#pragma omp for schedule(static)
    for (int64_t block = 0; block < (whole.rows + kTile - 1) / kTile; ++block) {
      kTileKernels.mirror(whole.c, whole.c_stride, whole.rows, block);
    }
  }
}

void multiply_tiles(const TileOperand& left, const TileOperand& right, Into into, at::Tensor& c) {
  TileProduct whole = product_of(left, right, c);
  whole.add = into == Into::kAdd;
  const bool by_rows = left.rows > right.rows;
#pragma omp parallel if (left.rows * right.rows > kSmallWork)
  {
    const Share mine = share(by_rows ? left.rows : right.rows, 2 * kTile, omp_get_thread_num(),
                             omp_get_num_threads());
    kTileKernels.enter();
    multiply_part(by_rows ? rows_of(whole, mine) : columns_of(whole, mine), whole.steps);
    kTileKernels.leave();
  }
}

namespace {

at::Tensor dense_rows(const at::Tensor& x) {
  return is_dense(x) ? x : x.contiguous();
}

/// Kept for the backward pass: x in bf16 as packed, and the weights themselves.
struct TileProductFunction : torch::autograd::Function<TileProductFunction> {
  static variable_list forward(AutogradContext* ctx, const Variable& x_RI, const Variable& w0,
                               const std::optional<Variable>& w1, const std::optional<Variable>& w2,
                               bool joined) {
    std::vector<Variable> weights = {w0};
    if (w1) weights.push_back(*w1);
    if (w2) weights.push_back(*w2);
    const TileOperand x = left_operand(dense_rows(x_RI));
    variable_list saved = {x.data}, out;
    int64_t columns = 0;
    for (const Variable& w : weights) columns += w.size(0);
    if (joined) out.push_back(at::empty({x.rows, columns}, at::kFloat));
    for (const Variable& w : weights) {
      if (!joined) out.push_back(at::empty({x.rows, w.size(0)}, at::kFloat));
      at::Tensor y = out.back();
      if (joined) y = y.narrow(1, y.size(1) - columns, w.size(0));
      columns -= w.size(0);
      multiply_tiles(x, right_operand_of_transposed(w), Into::kSet, y);
      saved.push_back(w);
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["rows"] = x.rows;
    ctx->saved_data["joined"] = joined;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const int64_t rows = ctx->saved_data["rows"].toInt(), count = saved.size() - 1;
    const bool joined = ctx->saved_data["joined"].toBool();
    const profile::Range range("drafter", "products, backward", [&] {
      profile::Work work;
      const int64_t gradients = ctx->needs_input_grad(0) + ctx->needs_input_grad(1);
      for (int64_t i = 1; i <= count; ++i) {
        work.operations +=
            profile::product(gradients * rows, saved[i].size(0), saved[i].size(1), 2).operations;
      }
      return work;
    });
    const TileOperand x{saved[0], rows, saved[1].size(1)};
    variable_list out(5);
    TileOperand x_right;
    int64_t column = 0;
    for (int64_t i = 0; i < count; ++i) {
      const at::Tensor& weight = saved[i + 1];
      const at::Tensor& given = grads[joined ? 0 : i];
      if (!given.defined()) continue;
      const at::Tensor all = dense_rows(given);
      const at::Tensor dy = joined ? all.narrow(1, column, weight.size(0)) : all;
      column += weight.size(0);
      if (ctx->needs_input_grad(0)) {
        const bool first = !out[0].defined();
        if (first) out[0] = at::empty({rows, x.k}, at::kFloat);
        multiply_tiles(left_operand(dy), right_operand(weight), first ? Into::kSet : Into::kAdd,
                       out[0]);
      }
      if (ctx->needs_input_grad(i + 1)) {
        if (!x_right.data.defined()) x_right = right_operand_of_left(x);
        out[i + 1] = at::empty(weight.sizes(), at::kFloat);
        multiply_tiles(left_operand_of_transposed(dy), x_right, Into::kSet, out[i + 1]);
      }
    }
    return out;
  }
};

}  // namespace

std::vector<at::Tensor> tile_products(const at::Tensor& x_RI,
                                      const std::vector<at::Tensor>& weights, Results results) {
  DF_ASSERT(!weights.empty() && weights.size() <= 3, "{} weights", weights.size());
  for (const at::Tensor& w : weights) expect_shape(w, {-1, x_RI.size(1)}, "weight");
  const auto later = [&](size_t i) {
    return i < weights.size() ? std::optional<at::Tensor>(weights[i]) : std::nullopt;
  };
  return TileProductFunction::apply(x_RI, weights[0], later(1), later(2),
                                    results == Results::kJoined);
}

}  // namespace dflash::nn
