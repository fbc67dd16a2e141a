#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <omp.h>

#include <cstring>

#include "draft/tile_attention_parts.h"

namespace dflash::draft::tiles {
namespace {

struct BackwardMemory {
  BackwardMemory(const Sizes& s, const Largest& l)
      : arena(8192 + 4 * (l.rows * (2 * s.dim + 2 * kKeys + 8) + 3 * l.own * s.dim) +
              2 * (l.rows * (4 * s.dim + 3 * kKeys) + 3 * l.own * s.dim)),
        gathered(arena.take<float>(l.rows * s.dim)),
        own(arena.take<float>(l.own * s.dim)),
        own_dk(arena.take<float>(l.own * s.dim)),
        own_dv(arena.take<float>(l.own * s.dim)),
        scores(arena.take<float>(kKeys * l.rows)),
        dweights(arena.take<float>(kKeys * l.rows)),
        dq(arena.take<float>(s.dim * l.rows)),
        lse(arena.take<float>(l.rows)),
        delta(arena.take<float>(l.rows)),
        factor(arena.take<float>(l.rows)),
        queries_turned(arena.take<uint16_t>(l.rows * s.dim)),
        queries(arena.take<uint16_t>(l.rows * s.dim)),
        dout_turned(arena.take<uint16_t>(l.rows * s.dim)),
        dout(arena.take<uint16_t>(l.rows * s.dim)),
        weights(arena.take<uint16_t>(kKeys * l.rows)),
        slopes(arena.take<uint16_t>(kKeys * l.rows)),
        slopes_right(arena.take<uint16_t>(kKeys * l.rows)),
        own_keys(arena.take<uint16_t>(l.own * s.dim)),
        own_values(arena.take<uint16_t>(l.own * s.dim)),
        own_turned(arena.take<uint16_t>(l.own * s.dim)) {}
  Arena arena;
  float *gathered, *own, *own_dk, *own_dv, *scores, *dweights, *dq, *lse, *delta, *factor;
  uint16_t *queries_turned, *queries, *dout_turned, *dout, *weights, *slopes, *slopes_right;
  uint16_t *own_keys, *own_values, *own_turned;
};

/// Where the gradients of one source's rows go: row 0 of these is key `first`.
struct KeyGradients {
  float *dk = nullptr, *dv = nullptr;
  int64_t first = 0, count = 0;
};

/// Adds one source's part to the gradients of a unit's queries and of the keys and values.
void backward_through(const Sizes& s, const PackedKeys& source, block::Span span, SeenKeys seen,
                      const KeyGradients& to, BackwardMemory& m) {
  const int64_t block = s.dim_steps() * kTileBf16, row_steps = seen.rows / kStepK;
  for (int64_t first = span.begin / kStepK * kStepK; first < span.end; first += kKeys) {
    seen.first = first;
    seen.keys = std::min(kKeys, round_up(span.end - first, kStepK));
    TileProduct p{.steps = s.dim_steps(),
                  .rows = seen.keys,
                  .columns = seen.rows,
                  .c = m.scores,
                  .c_stride = seen.rows};
    product(source.keys + first / kTile * block, block, m.queries_turned, block, p);
    p.c = m.dweights;
    product(source.values + first / kTile * block, block, m.dout_turned, block, p);
    kTileSoftmax.gradient({.seen = seen,
                           .scores = m.scores,
                           .dweights = m.dweights,
                           .lse = m.lse,
                           .delta = m.delta,
                           .weights_left = m.weights,
                           .slopes_left = m.slopes,
                           .slopes_right = m.slopes_right});
    const int64_t offset = (first - to.first) * s.dim;
    p = {.steps = row_steps,
         .rows = std::min(seen.keys, to.first + to.count - first),
         .columns = s.dim,
         .c_stride = s.dim,
         .add = true};
    p.c = to.dv + offset;
    product(m.weights, row_steps * kTileBf16, m.dout, row_steps * kTileBf16, p);
    p.c = to.dk + offset;
    product(m.slopes, row_steps * kTileBf16, m.queries, row_steps * kTileBf16, p);
    product(source.turned + first / kStepK * kTileBf16, steps_of(source.count) * kTileBf16,
            m.slopes_right, seen.keys / kStepK * kTileBf16,
            {.steps = seen.keys / kStepK,
             .rows = s.dim,
             .columns = seen.rows,
             .c = m.dq,
             .c_stride = seen.rows,
             .add = true});
  }
}

/// Gradients of the context rows that one run sees; their first row is a multiple of 32.
struct ContextSums {
  ContextSums(const Sizes& s, const AttentionRun& run)
      : first(run.context.begin / kStepK * kStepK), count(run.context.end - first) {
    if (count <= 0) return;
    dk_TE = at::zeros({count, s.dim}, at::kFloat);
    dv_TE = at::zeros({count, s.dim}, at::kFloat);
  }
  KeyGradients part() const {
    if (count <= 0) return {};
    return {dk_TE.mutable_data_ptr<float>(), dv_TE.mutable_data_ptr<float>(), first, count};
  }
  int64_t first, count;
  at::Tensor dk_TE, dv_TE;
};

/// Runs overlap in the context: they are joined in the order of threads, kv heads in parallel.
void join(const Sizes& s, const std::vector<std::vector<AttentionRun>>& runs,
          const std::vector<std::vector<ContextSums>>& sums, const at::Tensor& dk_TGE,
          const at::Tensor& dv_TGE) {
#pragma omp parallel for schedule(static)
  for (int64_t g = 0; g < s.kv_heads; ++g) {
    for (size_t t = 0; t < sums.size(); ++t) {
      for (size_t i = 0; i < sums[t].size(); ++i) {
        const KeyGradients part = sums[t][i].part();
        if (runs[t][i].kv_head != g || part.count <= 0) continue;
        for (int64_t row = 0; row < part.count; ++row) {
          const int64_t to = ((part.first + row) * s.kv_heads + g) * s.dim;
          float* dk = dk_TGE.mutable_data_ptr<float>() + to;
          float* dv = dv_TGE.mutable_data_ptr<float>() + to;
          for (int64_t d = 0; d < s.dim; ++d) {
            dk[d] += part.dk[row * s.dim + d];
            dv[d] += part.dv[row * s.dim + d];
          }
        }
      }
    }
  }
}

struct BackwardCall {
  const Sizes& s;
  const AttentionPlan& plan;
  const BlockAttentionInputs& in;
  const ContextPacks& packs;
  const float *out_NKHE, *lse_NKH, *dout_NKHE;
  float *dq_NKHE, *dk_NKGE, *dv_NKGE;

  float scale() const { return 1.0F / std::sqrt(static_cast<float>(s.dim)); }

  void run(const AttentionUnit& given, const KeyGradients& sums, BackwardMemory& m) const {
    const Unit unit(s, plan, given);
    load_rows(unit, m);
    std::fill_n(m.dq, s.dim * unit.rows, 0.0F);
    const PackedKeys context{packs.piece(given.kv_head, 0), packs.piece(given.kv_head, 2),
                             packs.piece(given.kv_head, 1), packs.padded};
    backward_through(
        s, context, given.group->context,
        {.begin = unit.context_begin.data(), .end = unit.context_end.data(), .rows = unit.rows},
        sums, m);
    own_blocks(unit, m);
    std::vector<float*> rows;
    for (const int64_t row : unit.query_rows) rows.push_back(dq_NKHE + row * s.dim);
    std::fill_n(m.factor, unit.rows, scale());
    kTileSoftmax.deliver(m.dq, s.dim, unit.rows, m.factor, unit.count(), rows.data());
  }

  void load_rows(const Unit& unit, BackwardMemory& m) const {
    const TileShare rows{0, unit.rows / kTile}, dims{0, s.dim / kTile};
    const TileSource queries =
        gather(in.q_NKHE.const_data_ptr<float>(), unit.query_rows, s.dim, scale(), m.gathered);
    kTileKernels.right_transposed(queries, rows, m.queries_turned);
    kTileKernels.right(queries, dims, m.queries);
    const TileSource dout = gather(dout_NKHE, unit.query_rows, s.dim, 1, m.gathered);
    kTileKernels.right_transposed(dout, rows, m.dout_turned);
    kTileKernels.right(dout, dims, m.dout);
    std::fill_n(m.lse, unit.rows, 0.0F);
    std::fill_n(m.delta, unit.rows, 0.0F);
    for (int64_t i = 0; i < unit.count(); ++i) {
      const int64_t row = unit.query_rows[static_cast<size_t>(i)];
      const float *out = out_NKHE + row * s.dim, *slope = m.gathered + i * s.dim;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t d = 0; d < s.dim; ++d) sum += out[d] * slope[d];
      m.delta[i] = sum;
      m.lse[i] = lse_NKH[row];
    }
  }

  void own_blocks(const Unit& unit, BackwardMemory& m) const {
    const int64_t padded = round_up(unit.own_count(), kStepK);
    const TileShare rows{0, padded / kTile};
    const TileSource keys =
        gather(in.k_NKGE.const_data_ptr<float>(), unit.own_rows, s.dim, 1, m.own);
    kTileKernels.left(keys, rows, m.own_keys);
    kTileKernels.left_transposed(keys, {0, s.dim / kTile}, m.own_turned);
    kTileKernels.left(gather(in.v_NKGE.const_data_ptr<float>(), unit.own_rows, s.dim, 1, m.own),
                      rows, m.own_values);
    std::fill_n(m.own_dk, unit.own_count() * s.dim, 0.0F);
    std::fill_n(m.own_dv, unit.own_count() * s.dim, 0.0F);
    backward_through(
        s, {m.own_keys, m.own_values, m.own_turned, padded}, {0, unit.own_count()},
        {.begin = unit.own_begin.data(), .end = unit.own_end.data(), .rows = unit.rows},
        {m.own_dk, m.own_dv, 0, unit.own_count()}, m);
    for (int64_t i = 0; i < unit.own_count(); ++i) {
      const int64_t to = unit.own_rows[static_cast<size_t>(i)] * s.dim;
      std::memcpy(dk_NKGE + to, m.own_dk + i * s.dim, s.dim * sizeof(float));
      std::memcpy(dv_NKGE + to, m.own_dv + i * s.dim, s.dim * sizeof(float));
    }
  }
};

}  // namespace

std::vector<at::Tensor> attend_backward(const BlockAttentionInputs& in, const AttentionPlan& plan,
                                        const at::Tensor& out_NKHE, const at::Tensor& lse_NKH,
                                        const at::Tensor& dout_NKHE) {
  const Sizes s = sizes_of(in);
  const auto groups = attention_groups(plan);
  const auto runs = deal_attention(groups, s.kv_heads, omp_get_max_threads());
  const Largest largest = largest_unit(s, groups);
  const ContextPacks packs(s, /*backward=*/true);
  const std::vector<at::Tensor> grads = {
      at::empty(in.q_NKHE.sizes(), at::kFloat), at::zeros(in.k_TGE.sizes(), at::kFloat),
      at::zeros(in.v_TGE.sizes(), at::kFloat), at::empty(in.k_NKGE.sizes(), at::kFloat),
      at::empty(in.v_NKGE.sizes(), at::kFloat)};
  const BackwardCall call{s,
                          plan,
                          in,
                          packs,
                          out_NKHE.const_data_ptr<float>(),
                          lse_NKH.const_data_ptr<float>(),
                          dout_NKHE.const_data_ptr<float>(),
                          grads[0].mutable_data_ptr<float>(),
                          grads[3].mutable_data_ptr<float>(),
                          grads[4].mutable_data_ptr<float>()};
  std::vector<std::vector<ContextSums>> sums(runs.size());
#pragma omp parallel
  {
    const c10::NoGradGuard no_grad;
    BackwardMemory memory(s, largest);
    kTileKernels.enter();
    pack_context(s, packs, in.k_TGE, in.v_TGE, /*backward=*/true);
#pragma omp for schedule(static, 1)
    for (size_t t = 0; t < runs.size(); ++t) {
      for (const AttentionRun& run : runs[t]) {
        sums[t].emplace_back(s, run);
        for (const AttentionUnit& unit : run.units) call.run(unit, sums[t].back().part(), memory);
      }
    }
    kTileKernels.leave();
  }
  join(s, runs, sums, grads[1], grads[2]);
  return grads;
}

}  // namespace dflash::draft::tiles
