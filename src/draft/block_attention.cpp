// Rows are kept as [G, N*K*r, E] (r = H / G query heads of one kv head), so that the context part
// of a tile is one batched product over kv heads and the in-block part one over kv heads and
// blocks. Both parts have their own maximum and sum; they are joined by log-sum-exp.
#include "draft/block_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/profile.h"
#include "nn/shapes.h"
#include "nn/vector_math.h"

namespace dflash::draft {
namespace {

using torch::autograd::AutogradContext;
using Tensors = torch::autograd::variable_list;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// [N, K, G*x, E] -> [G, N, K, x, E], blocks in the plan's order.
at::Tensor gather_heads(const at::Tensor& rows, int64_t kv_heads, const AttentionPlan& plan) {
  at::Tensor x = rows;
  if (!plan.is_sorted()) x = x.index_select(0, at::tensor(plan.order(), at::kLong));
  const int64_t n = x.size(0), k = x.size(1), e = x.size(3);
  return x.reshape({n, k, kv_heads, -1, e}).permute({2, 0, 1, 3, 4}).contiguous();
}

// The inverse of gather_heads.
at::Tensor scatter_heads(const at::Tensor& rows_GNKxE, const AttentionPlan& plan) {
  at::Tensor x = rows_GNKxE.permute({1, 2, 0, 3, 4}).flatten(2, 3);
  if (plan.is_sorted()) return x.contiguous();
  at::Tensor result = at::empty(x.sizes(), x.options());
  result.index_copy_(0, at::tensor(plan.order(), at::kLong), x);
  return result;
}

void mask_borders(at::Tensor& scores, const AttentionPlan& plan, const AttentionPlan::Tile& tile) {
  const int64_t width = scores.size(1);
  for (const AttentionPlan::Border& border : plan.borders(tile)) {
    at::Tensor rows = scores.narrow(0, border.row, border.num_rows);
    if (border.begin > 0) rows.narrow(1, 0, border.begin).fill_(kMinusInfinity);
    if (border.end < width) {
      rows.narrow(1, border.end, width - border.end).fill_(kMinusInfinity);
    }
  }
}

// Everything below works on these views; q is already scaled by E^-0.5.
struct Views {
  at::Tensor q_GRE;         // R = N*K*r
  at::Tensor k_GTE, v_GTE;  // context
  at::Tensor k_MKE, v_MKE;  // in block, M = G*N
  const AttentionPlan* plan;

  int64_t rows_per_block() const { return plan->block_size() * plan->heads_per_kv(); }
  // [G, N*K*r, ...] as [G*N, K*r, ...]
  at::Tensor by_block(const at::Tensor& x_GRx) const {
    return x_GRx.reshape({-1, rows_per_block(), x_GRx.size(-1)});
  }
  at::Tensor block_scores() const {  // [M, K*r, K]
    at::Tensor scores = at::bmm(by_block(q_GRE), k_MKE.transpose(1, 2));
    if (plan->in_block_bias().defined()) scores.add_(plan->in_block_bias());
    return scores;
  }
};

// One kv head of one tile: the unit of work of a thread.
struct Task {
  const Views& views;
  const AttentionPlan::Tile& tile;
  int64_t kv_head;

  at::Tensor rows(const at::Tensor& x_GRx) const {
    const int64_t r = views.rows_per_block();
    return x_GRx.select(0, kv_head).narrow(0, tile.first_block * r, tile.num_blocks * r);
  }
  at::Tensor context(const at::Tensor& x_TE) const {
    return x_TE.narrow(0, tile.context.begin, tile.context.end - tile.context.begin);
  }
  at::Tensor k() const { return context(views.k_GTE.select(0, kv_head)); }
  at::Tensor v() const { return context(views.v_GTE.select(0, kv_head)); }
  at::Tensor scores() const {
    at::Tensor scores = at::mm(rows(views.q_GRE), k().t());
    mask_borders(scores, *views.plan, tile);
    return scores;
  }
};

// Consecutive tiles of one kv head, worked off by one thread.
struct Run {
  int64_t kv_head = 0;
  std::span<const AttentionPlan::Tile> tiles;
  size_t thread = 0;

  template <typename Work>
  void for_each_task(const Views& views, const Work& work) const {
    for (const AttentionPlan::Tile& tile : tiles) {
      if (tile.context.end > tile.context.begin) work(Task{views, tile, kv_head});
    }
  }
};

// Every thread gets a fixed share of all tiles of all kv heads, kv head by kv head, so sums per
// run depend on the number of threads only.
template <typename Work>
void for_each_run(const Views& views, const Work& work) {
  const std::span<const AttentionPlan::Tile> tiles = views.plan->tiles();
  const auto num_tiles = static_cast<int64_t>(tiles.size());
  at::parallel_for(0, views.k_GTE.size(0) * num_tiles, 1, [&](int64_t begin, int64_t end) {
    const c10::NoGradGuard no_grad;
    while (begin < end) {
      const int64_t kv_head = begin / num_tiles, first = begin % num_tiles;
      const int64_t count = std::min(end - begin, num_tiles - first);
      work(Run{kv_head, tiles.subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
               static_cast<size_t>(at::get_thread_num())});
      begin += count;
    }
  });
}

// Output rows and their log-sum-exp, [G, R, E] and [G, R, 1].
std::pair<at::Tensor, at::Tensor> attend_forward(const Views& views) {
  at::Tensor block = views.block_scores();
  const at::Tensor block_max = block.amax(-1, /*keepdim=*/true);
  block.sub_(block_max).exp_();
  const at::Tensor block_sum = block.sum(-1, /*keepdim=*/true);
  at::Tensor out = at::bmm(block, views.v_MKE).view_as(views.q_GRE);
  at::Tensor top = block_max.view({views.q_GRE.size(0), -1, 1});  // running maximum
  at::Tensor sum = block_sum.view_as(top);
  for_each_run(views, [&](const Run& run) {
    run.for_each_task(views, [&](const Task& task) {
      at::Tensor scores = task.scores();
      at::Tensor tile_top = task.rows(top);
      const at::Tensor new_top = at::maximum(scores.amax(-1, /*keepdim=*/true), tile_top);
      scores.sub_(new_top).exp_();
      const at::Tensor shrink = (tile_top - new_top).exp_();
      task.rows(sum).mul_(shrink).add_(scores.sum(-1, /*keepdim=*/true));
      at::Tensor tile_out = task.rows(out);
      tile_out.mul_(shrink).addmm_(scores, task.v());
      tile_top.copy_(new_top);
    });
  });
  out.div_(sum);
  return {out, sum.log().add_(top)};
}

// Undefined where nobody asked.
struct Gradients {
  at::Tensor q_GRE, k_GTE, v_GTE, k_MKE, v_MKE;
};
struct Wanted {
  bool q = true, context = true, block = true;  // keys and values together
};

// Gradients of the context rows that one run sees.
struct ContextSums {
  int64_t kv_head = 0, begin = 0;
  at::Tensor k_TE, v_TE;
};

ContextSums zero_sums(const Run& run, const at::Tensor& like) {
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  for (const AttentionPlan::Tile& tile : run.tiles) {
    if (tile.context.end <= tile.context.begin) continue;
    begin = std::min(begin, tile.context.begin);
    end = std::max(end, tile.context.end);
  }
  if (end == 0) return {run.kv_head, 0, {}, {}};
  ContextSums sums{run.kv_head, begin, at::zeros({end - begin, like.size(-1)}, like.options()), {}};
  sums.v_TE = at::zeros_like(sums.k_TE);
  return sums;
}

// Tiles of one kv head overlap in the context, so every run has its own sums; they are joined in
// the order of the threads, kv heads in parallel.
void join_sums(const std::vector<std::vector<ContextSums>>& sums_of_threads, Gradients& grads) {
  at::parallel_for(0, grads.k_GTE.size(0), 1, [&](int64_t first, int64_t last) {
    const c10::NoGradGuard no_grad;
    for (const auto& sums_of_thread : sums_of_threads) {
      for (const ContextSums& sums : sums_of_thread) {
        if (sums.kv_head < first || sums.kv_head >= last || !sums.k_TE.defined()) continue;
        const int64_t rows = sums.k_TE.size(0);
        grads.k_GTE.select(0, sums.kv_head).narrow(0, sums.begin, rows).add_(sums.k_TE);
        grads.v_GTE.select(0, sums.kv_head).narrow(0, sums.begin, rows).add_(sums.v_TE);
      }
    }
  });
}

// Adds to grads.q_GRE.
void context_gradients(const Views& views, const at::Tensor& lse_GR1, const at::Tensor& delta_GR1,
                       const at::Tensor& dout_GRE, const Wanted& wanted, Gradients& grads) {
  std::vector<std::vector<ContextSums>> sums_of_threads(static_cast<size_t>(at::get_num_threads()));
  for_each_run(views, [&](const Run& run) {
    ContextSums own;
    if (wanted.context) own = zero_sums(run, views.k_GTE);
    run.for_each_task(views, [&](const Task& task) {
      const auto context_of = [&](const at::Tensor& sum_TE) {
        return sum_TE.narrow(0, task.tile.context.begin - own.begin,
                             task.tile.context.end - task.tile.context.begin);
      };
      const at::Tensor dout = task.rows(dout_GRE);
      const at::Tensor weights = task.scores().sub_(task.rows(lse_GR1)).exp_();
      if (wanted.context) context_of(own.v_TE).addmm_(weights.t(), dout);
      at::Tensor dscores = at::mm(dout, task.v().t());
      dscores.sub_(task.rows(delta_GR1)).mul_(weights);
      if (wanted.context) context_of(own.k_TE).addmm_(dscores.t(), task.rows(views.q_GRE));
      if (wanted.q) task.rows(grads.q_GRE).addmm_(dscores, task.k());
    });
    if (wanted.context) sums_of_threads[run.thread].push_back(std::move(own));
  });
  if (!wanted.context) return;
  grads.k_GTE = at::zeros_like(views.k_GTE);
  grads.v_GTE = at::zeros_like(views.v_GTE);
  join_sums(sums_of_threads, grads);
}

Gradients attend_backward(const Views& views, const at::Tensor& out_GRE, const at::Tensor& lse_GR1,
                          const at::Tensor& dout_GRE, const Wanted& wanted) {
  const at::Tensor delta = (out_GRE * dout_GRE).sum(-1, /*keepdim=*/true);
  Gradients grads;
  if (wanted.q || wanted.block) {
    const at::Tensor dout = views.by_block(dout_GRE);
    const at::Tensor weights = views.block_scores().sub_(views.by_block(lse_GR1)).exp_();
    if (wanted.block) grads.v_MKE = at::bmm(weights.transpose(1, 2), dout);
    at::Tensor dscores = at::bmm(dout, views.v_MKE.transpose(1, 2));
    dscores.sub_(views.by_block(delta)).mul_(weights);
    if (wanted.block) grads.k_MKE = at::bmm(dscores.transpose(1, 2), views.by_block(views.q_GRE));
    if (wanted.q) grads.q_GRE = at::bmm(dscores, views.k_MKE).view_as(views.q_GRE);
  }
  if (wanted.q || wanted.context) {
    context_gradients(views, lse_GR1, delta, dout_GRE, wanted, grads);
  }
  return grads;
}

// Keeps the plan alive for the backward pass.
struct PlanHolder : torch::CustomClassHolder {
  explicit PlanHolder(std::shared_ptr<const AttentionPlan> p) : plan(std::move(p)) {}
  std::shared_ptr<const AttentionPlan> plan;
};

class BlockAttention : public torch::autograd::Function<BlockAttention> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_NKHE, const at::Tensor& k_TGE,
                            const at::Tensor& v_TGE, const at::Tensor& k_NKGE,
                            const at::Tensor& v_NKGE,
                            const std::shared_ptr<const AttentionPlan>& plan) {
    const int64_t kv_heads = k_TGE.size(1), e = q_NKHE.size(3);
    // Not in place: gather_heads may give back the caller's own storage.
    const at::Tensor q =
        gather_heads(q_NKHE, kv_heads, *plan) * (1.0 / std::sqrt(static_cast<double>(e)));
    const Views views{q.view({kv_heads, -1, e}),
                      k_TGE.permute({1, 0, 2}).contiguous(),
                      v_TGE.permute({1, 0, 2}).contiguous(),
                      gather_heads(k_NKGE, kv_heads, *plan).view({-1, plan->block_size(), e}),
                      gather_heads(v_NKGE, kv_heads, *plan).view({-1, plan->block_size(), e}),
                      plan.get()};
    auto [out, lse] = attend_forward(views);
    ctx->save_for_backward(
        {views.q_GRE, views.k_GTE, views.v_GTE, views.k_MKE, views.v_MKE, out, lse});
    ctx->saved_data["plan"] = c10::IValue::make_capsule(c10::make_intrusive<PlanHolder>(plan));
    return scatter_heads(out.view_as(q), *plan);
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grad_outputs) {
    DF_ASSERT(!c10::GradMode::is_enabled(), "block_attention is differentiable once");
    const profile::Range range("drafter", "attention, backward");
    const Tensors saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["plan"].toCapsule();
    const auto& plan = static_cast<const PlanHolder&>(*holder).plan;
    const Views views{saved[0], saved[1], saved[2], saved[3], saved[4], plan.get()};
    const int64_t kv_heads = saved[1].size(0), e = saved[0].size(2);
    const int64_t n = plan->num_blocks(), k = plan->block_size();
    const at::Tensor dout = gather_heads(grad_outputs[0], kv_heads, *plan).view({kv_heads, -1, e});
    const Wanted wanted{.q = ctx->needs_input_grad(0),
                        .context = ctx->needs_input_grad(1) || ctx->needs_input_grad(2),
                        .block = ctx->needs_input_grad(3) || ctx->needs_input_grad(4)};
    Gradients grads = attend_backward(views, saved[5], saved[6], dout, wanted);
    Tensors result(6);  // the plan has none
    if (wanted.q) {
      grads.q_GRE.mul_(1.0 / std::sqrt(static_cast<double>(e)));
      result[0] = scatter_heads(grads.q_GRE.view({kv_heads, n, k, -1, e}), *plan);
    }
    if (wanted.context) {
      result[1] = grads.k_GTE.permute({1, 0, 2});
      result[2] = grads.v_GTE.permute({1, 0, 2});
    }
    if (wanted.block) {
      result[3] = scatter_heads(grads.k_MKE.view({kv_heads, n, k, 1, e}), *plan);
      result[4] = scatter_heads(grads.v_MKE.view({kv_heads, n, k, 1, e}), *plan);
    }
    return result;
  }
};

}  // namespace

// Shapes before anything reads a size of them.
void check_attention_inputs(const BlockAttentionInputs& inputs, const AttentionPlan& plan) {
  const int64_t n = plan.num_blocks(), k = plan.block_size();
  nn::expect_shape(inputs.q_NKHE, {n, k, -1, -1}, "block queries");
  const int64_t e = inputs.q_NKHE.size(3);
  nn::expect_shape(inputs.k_TGE, {-1, -1, e}, "context keys");
  const int64_t length = inputs.k_TGE.size(0), kv_heads = inputs.k_TGE.size(1);
  nn::expect_shape(inputs.q_NKHE, {n, k, kv_heads * plan.heads_per_kv(), e}, "block queries");
  nn::expect_shape(inputs.v_TGE, {length, kv_heads, e}, "context values");
  nn::expect_shape(inputs.k_NKGE, {n, k, kv_heads, e}, "block keys");
  nn::expect_shape(inputs.v_NKGE, {n, k, kv_heads, e}, "block values");
  const at::ScalarType type = inputs.q_NKHE.scalar_type();
  DF_ASSERT(type == at::kFloat || type == at::kDouble, "queries are {}", at::toString(type));
  for (const at::Tensor* x : {&inputs.k_TGE, &inputs.v_TGE, &inputs.k_NKGE, &inputs.v_NKGE}) {
    DF_ASSERT(x->scalar_type() == type, "{} beside queries of {}", at::toString(x->scalar_type()),
              at::toString(type));
  }
  for (const AttentionPlan::Tile& tile : plan.tiles()) {
    DF_ASSERT(tile.context.begin >= 0 && tile.context.end <= length, "context [{}, {}) of {} rows",
              tile.context.begin, tile.context.end, length);
  }
}

at::Tensor block_attention(const BlockAttentionInputs& inputs,
                           const std::shared_ptr<const AttentionPlan>& plan) {
  check_attention_inputs(inputs, *plan);
  nn::settle_vector_math();
  if (plan->num_blocks() == 0) return inputs.q_NKHE.clone();
  return BlockAttention::apply(inputs.q_NKHE, inputs.k_TGE, inputs.v_TGE, inputs.k_NKGE,
                               inputs.v_NKGE, plan);
}

}  // namespace dflash::draft
