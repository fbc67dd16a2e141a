// Rows are kept as [G, N*K*r, E] (r = H / G query heads of one kv head), so that the context part
// of a tile is one batched product over kv heads and the in-block part one over kv heads and
// blocks. Both parts have their own maximum and sum; they are joined by log-sum-exp.
#include "draft/block_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "base/error.h"
#include "nn/shapes.h"

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
    if (plan->in_block().defined()) {
      scores.masked_fill_(plan->in_block().logical_not().to(scores.device()), kMinusInfinity);
    }
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

// Runs `work(task, thread)` for every kv head and tile with a context. Threads get fixed runs of
// tasks, kv head by kv head, so sums per thread depend on the number of threads only.
template <typename Work>
void for_each_task(const Views& views, const Work& work) {
  const auto& tiles = views.plan->tiles();
  const auto num_tiles = static_cast<int64_t>(tiles.size());
  at::parallel_for(0, views.k_GTE.size(0) * num_tiles, 1, [&](int64_t begin, int64_t end) {
    const c10::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) {
      const AttentionPlan::Tile& tile = tiles[i % num_tiles];
      if (tile.context.end > tile.context.begin) {
        work(Task{views, tile, i / num_tiles}, at::get_thread_num());
      }
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
  for_each_task(views, [&](const Task& task, int /*thread*/) {
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
  out.div_(sum);
  return {out, sum.log().add_(top)};
}

struct Gradients {
  at::Tensor q_GRE, k_GTE, v_GTE, k_MKE, v_MKE;
};

// Tiles of one kv head overlap in the context, so every thread sums its own keys and values.
void context_gradients(const Views& views, const at::Tensor& lse_GR1, const at::Tensor& delta_GR1,
                       const at::Tensor& dout_GRE, Gradients& grads) {
  const int64_t kv_heads = views.k_GTE.size(0);
  struct Sums {
    at::Tensor k_TE, v_TE;
  };
  std::vector<Sums> sums(static_cast<size_t>(at::get_num_threads() * kv_heads));
  for_each_task(views, [&](const Task& task, int thread) {
    Sums& own = sums[thread * kv_heads + task.kv_head];
    if (!own.k_TE.defined()) {
      own.k_TE = at::zeros_like(views.k_GTE.select(0, task.kv_head));
      own.v_TE = at::zeros_like(own.k_TE);
    }
    const at::Tensor dout = task.rows(dout_GRE);
    const at::Tensor weights = task.scores().sub_(task.rows(lse_GR1)).exp_();
    task.context(own.v_TE).addmm_(weights.t(), dout);
    at::Tensor dscores = at::mm(dout, task.v().t());
    dscores.sub_(task.rows(delta_GR1)).mul_(weights);
    task.context(own.k_TE).addmm_(dscores.t(), task.rows(views.q_GRE));
    task.rows(grads.q_GRE).addmm_(dscores, task.k());
  });
  grads.k_GTE = at::zeros_like(views.k_GTE);
  grads.v_GTE = at::zeros_like(views.v_GTE);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!sums[i].k_TE.defined()) continue;
    const auto kv_head = static_cast<int64_t>(i) % kv_heads;
    grads.k_GTE.select(0, kv_head).add_(sums[i].k_TE);
    grads.v_GTE.select(0, kv_head).add_(sums[i].v_TE);
  }
}

Gradients attend_backward(const Views& views, const at::Tensor& out_GRE, const at::Tensor& lse_GR1,
                          const at::Tensor& dout_GRE) {
  const at::Tensor delta = (out_GRE * dout_GRE).sum(-1, /*keepdim=*/true);
  Gradients grads;
  {
    const at::Tensor dout = views.by_block(dout_GRE);
    const at::Tensor weights = views.block_scores().sub_(views.by_block(lse_GR1)).exp_();
    grads.v_MKE = at::bmm(weights.transpose(1, 2), dout);
    at::Tensor dscores = at::bmm(dout, views.v_MKE.transpose(1, 2));
    dscores.sub_(views.by_block(delta)).mul_(weights);
    grads.k_MKE = at::bmm(dscores.transpose(1, 2), views.by_block(views.q_GRE));
    grads.q_GRE = at::bmm(dscores, views.k_MKE).view_as(views.q_GRE);
  }
  context_gradients(views, lse_GR1, delta, dout_GRE, grads);
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
    const Tensors saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["plan"].toCapsule();
    const auto& plan = static_cast<const PlanHolder&>(*holder).plan;
    const Views views{saved[0], saved[1], saved[2], saved[3], saved[4], plan.get()};
    const int64_t kv_heads = saved[1].size(0), e = saved[0].size(2);
    const int64_t n = plan->num_blocks(), k = plan->block_size();
    const at::Tensor dout = gather_heads(grad_outputs[0], kv_heads, *plan).view({kv_heads, -1, e});
    Gradients grads = attend_backward(views, saved[5], saved[6], dout);
    grads.q_GRE.mul_(1.0 / std::sqrt(static_cast<double>(e)));
    return {scatter_heads(grads.q_GRE.view({kv_heads, n, k, -1, e}), *plan),
            grads.k_GTE.permute({1, 0, 2}),
            grads.v_GTE.permute({1, 0, 2}),
            scatter_heads(grads.k_MKE.view({kv_heads, n, k, 1, e}), *plan),
            scatter_heads(grads.v_MKE.view({kv_heads, n, k, 1, e}), *plan),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor block_attention(const BlockAttentionInputs& inputs,
                           const std::shared_ptr<const AttentionPlan>& plan) {
  const at::Tensor& q = inputs.q_NKHE;
  const int64_t n = plan->num_blocks(), k = plan->block_size(), e = q.size(3);
  const int64_t kv_heads = inputs.k_TGE.size(1);
  nn::expect_shape(q, {n, k, kv_heads * plan->heads_per_kv(), e}, "block queries");
  nn::expect_shape(inputs.k_TGE, {-1, kv_heads, e}, "context keys");
  nn::expect_shape(inputs.v_TGE, {inputs.k_TGE.size(0), kv_heads, e}, "context values");
  nn::expect_shape(inputs.k_NKGE, {n, k, kv_heads, e}, "block keys");
  nn::expect_shape(inputs.v_NKGE, {n, k, kv_heads, e}, "block values");
  for (const AttentionPlan::Tile& tile : plan->tiles()) {
    DF_ASSERT(tile.context.begin >= 0 && tile.context.end <= inputs.k_TGE.size(0),
              "context [{}, {}) of {} rows", tile.context.begin, tile.context.end,
              inputs.k_TGE.size(0));
  }
  return BlockAttention::apply(q, inputs.k_TGE, inputs.v_TGE, inputs.k_NKGE, inputs.v_NKGE, plan);
}

}  // namespace dflash::draft
