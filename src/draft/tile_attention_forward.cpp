#include <omp.h>

#include "draft/tile_attention_parts.h"

namespace dflash::draft::tiles {
namespace {

struct ForwardMemory {
  ForwardMemory(const Sizes& s, const Largest& l)
      : arena(4096 + 4 * (l.rows * (2 * s.dim + kKeys + 8) + 2 * l.own * s.dim) +
              2 * (l.rows * (s.dim + kKeys) + 2 * l.own * s.dim)),
        gathered(arena.take<float>(l.rows * s.dim)),
        own(arena.take<float>(l.own * s.dim)),
        scores(arena.take<float>(kKeys * l.rows)),
        out(arena.take<float>(s.dim * l.rows)),
        top(arena.take<float>(l.rows)),
        sum(arena.take<float>(l.rows)),
        factor(arena.take<float>(l.rows)),
        queries(arena.take<uint16_t>(l.rows * s.dim)),
        weights(arena.take<uint16_t>(kKeys * l.rows)),
        own_keys(arena.take<uint16_t>(l.own * s.dim)),
        own_turned(arena.take<uint16_t>(l.own * s.dim)) {}
  Arena arena;
  float *gathered, *own, *scores, *out, *top, *sum, *factor;
  uint16_t *queries, *weights, *own_keys, *own_turned;
};

/// One source of keys into the running softmax of a unit, from `first` (a multiple of 32) on.
void attend_to(const Sizes& s, const PackedKeys& source, block::Span span, SeenKeys seen,
               ForwardMemory& m) {
  const int64_t steps = s.dim_steps(), turned_block = steps_of(source.count) * kTileBf16;
  for (int64_t first = span.begin / kStepK * kStepK; first < span.end; first += kKeys) {
    seen.first = first;
    seen.keys = std::min(kKeys, round_up(span.end - first, kStepK));
    product(source.keys + first / kTile * steps * kTileBf16, steps * kTileBf16, m.queries,
            steps * kTileBf16,
            {.steps = steps,
             .rows = seen.keys,
             .columns = seen.rows,
             .c = m.scores,
             .c_stride = seen.rows});
    const bool changed = kTileSoftmax.softmax({.seen = seen,
                                               .scores = m.scores,
                                               .top = m.top,
                                               .sum = m.sum,
                                               .factor = m.factor,
                                               .weights = m.weights});
    if (changed) kTileSoftmax.scale_rows(m.out, s.dim, seen.rows, m.factor);
    product(source.turned + first / kStepK * kTileBf16, turned_block, m.weights,
            seen.keys / kStepK * kTileBf16,
            {.steps = seen.keys / kStepK,
             .rows = s.dim,
             .columns = seen.rows,
             .c = m.out,
             .c_stride = seen.rows,
             .add = true});
  }
}

struct ForwardCall {
  const Sizes& s;
  const AttentionPlan& plan;
  const BlockAttentionInputs& in;
  const ContextPacks& packs;
  float* out_NKHE;
  float* lse_NKH;

  void run(const AttentionUnit& given, ForwardMemory& m) const {
    const Unit unit(s, plan, given);
    const float scale = 1.0F / std::sqrt(static_cast<float>(s.dim));
    const TileShare query_tiles{0, unit.rows / kTile};
    kTileKernels.right_transposed(
        gather(in.q_NKHE.const_data_ptr<float>(), unit.query_rows, s.dim, scale, m.gathered),
        query_tiles, m.queries);
    std::fill_n(m.top, unit.rows, kernels::kNothingSeen);
    std::fill_n(m.sum, unit.rows, 0.0F);
    std::fill_n(m.out, s.dim * unit.rows, 0.0F);
    const PackedKeys context{packs.piece(given.kv_head, 0), nullptr, packs.piece(given.kv_head, 1),
                             packs.padded};
    attend_to(
        s, context, given.group->context,
        {.begin = unit.context_begin.data(), .end = unit.context_end.data(), .rows = unit.rows}, m);
    own_blocks(unit, m);
    deliver(unit, m);
  }

  void own_blocks(const Unit& unit, ForwardMemory& m) const {
    const int64_t padded = round_up(unit.own_count(), kStepK);
    kTileKernels.left(gather(in.k_NKGE.const_data_ptr<float>(), unit.own_rows, s.dim, 1, m.own),
                      {0, padded / kTile}, m.own_keys);
    kTileKernels.left_transposed(
        gather(in.v_NKGE.const_data_ptr<float>(), unit.own_rows, s.dim, 1, m.own),
        {0, s.dim / kTile}, m.own_turned);
    attend_to(s, {m.own_keys, nullptr, m.own_turned, padded}, {0, unit.own_count()},
              {.begin = unit.own_begin.data(), .end = unit.own_end.data(), .rows = unit.rows}, m);
  }

  void deliver(const Unit& unit, ForwardMemory& m) const {
    std::vector<float*> rows;
    for (int64_t i = 0; i < unit.count(); ++i) {
      const int64_t row = unit.query_rows[static_cast<size_t>(i)];
      rows.push_back(out_NKHE + row * s.dim);
      lse_NKH[row] = m.top[i] + std::log(m.sum[i]);
      m.factor[i] = 1.0F / m.sum[i];
    }
    kTileSoftmax.deliver(m.out, s.dim, unit.rows, m.factor, unit.count(), rows.data());
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> attend_forward(const BlockAttentionInputs& in,
                                                 const AttentionPlan& plan) {
  const Sizes s = sizes_of(in);
  const auto groups = attention_groups(plan);
  const auto runs = deal_attention(groups, s.kv_heads, omp_get_max_threads());
  const Largest largest = largest_unit(s, groups);
  const ContextPacks packs(s, /*backward=*/false);
  at::Tensor out = at::empty(in.q_NKHE.sizes(), at::kFloat);
  at::Tensor lse = at::empty({s.blocks, s.slots, s.heads}, at::kFloat);
  const ForwardCall call{
      s, plan, in, packs, out.mutable_data_ptr<float>(), lse.mutable_data_ptr<float>()};
#pragma omp parallel
  {
    ForwardMemory memory(s, largest);
    kTileKernels.enter();
    pack_context(s, packs, in.k_TGE, in.v_TGE, /*backward=*/false);
#pragma omp for schedule(static, 1)
    for (size_t t = 0; t < runs.size(); ++t) {
      for (const AttentionRun& run : runs[t]) {
        for (const AttentionUnit& unit : run.units) call.run(unit, memory);
      }
    }
    kTileKernels.leave();
  }
  return {out, lse};
}

}  // namespace dflash::draft::tiles
