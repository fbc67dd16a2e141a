// What both directions of tile_attention share. Everything is kept transposed, [keys, rows] and
// [head dimension, rows], so that a vector lane is one query row: maxima and sums of the softmax
// never cross lanes, and its weights leave in the layout of the next product. q is scaled by
// E^-0.5 before it is rounded. Internal to draft/.
#pragma once

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "draft/attention_groups.h"
#include "draft/kernels/tile_softmax.h"
#include "nn/kernels/tiles.h"

namespace dflash::draft::tiles {

using namespace nn::kernels;
using kernels::kTileSoftmax;
using kernels::SeenKeys;

constexpr int64_t kKeys = 128;  // of a chunk: its scores of 96 rows are 48 KB

/// -> out [N, K, H, E] and log-sum-exp [N, K, H].
std::pair<at::Tensor, at::Tensor> attend_forward(const BlockAttentionInputs& in,
                                                 const AttentionPlan& plan);

/// Gradients of the inputs in their order.
std::vector<at::Tensor> attend_backward(const BlockAttentionInputs& in, const AttentionPlan& plan,
                                        const at::Tensor& out_NKHE, const at::Tensor& lse_NKH,
                                        const at::Tensor& dout_NKHE);

struct Sizes {
  int64_t blocks, slots, heads, kv_heads, dim, context;
  int64_t per_kv() const { return heads / kv_heads; }
  int64_t dim_steps() const { return dim / kStepK; }
};

inline Sizes sizes_of(const BlockAttentionInputs& in) {
  return {in.q_NKHE.size(0), in.q_NKHE.size(1), in.q_NKHE.size(2),
          in.k_TGE.size(1),  in.q_NKHE.size(3), in.k_TGE.size(0)};
}

/// Packed keys and values of one source: of a kv head's context, or of a group's own blocks.
struct PackedKeys {
  const uint16_t* keys = nullptr;    // left operand [keys, E]
  const uint16_t* values = nullptr;  // backward: left operand [keys, E]
  const uint16_t* turned = nullptr;  // left operand [E, keys]: of values, backward of keys
  int64_t count = 0;
};

/// Memory of one thread, cut off piece by piece.
class Arena {
 public:
  explicit Arena(int64_t bytes) : memory_(at::empty({bytes}, at::kByte)), left_(bytes) {
    next_ = memory_.mutable_data_ptr<uint8_t>();
  }
  template <typename T>
  T* take(int64_t count) {
    const int64_t bytes = round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    DF_ASSERT(bytes <= left_, "{} bytes of {}", bytes, left_);
    T* piece = reinterpret_cast<T*>(next_);
    next_ += bytes, left_ -= bytes;
    return piece;
  }

 private:
  at::Tensor memory_;
  uint8_t* next_ = nullptr;
  int64_t left_;
};

/// The rows of one unit: where they lie, what they see.
struct Unit {
  Unit(const Sizes& s, const AttentionPlan& plan, const AttentionUnit& unit) {
    const int64_t first = unit.group->first;
    for (int64_t b = first; b < first + unit.group->count; ++b) {
      for (int64_t k = 0; k < s.slots; ++k) {
        const int64_t row = plan.order()[static_cast<size_t>(b)] * s.slots + k;
        own_rows.push_back(row * s.kv_heads + unit.kv_head);
        const block::Span& context = plan.context(b * s.slots + k);
        const block::Span& own = plan.own_slots(k);
        const int64_t at = (b - first) * s.slots;
        for (int64_t j = 0; j < s.per_kv(); ++j) {
          query_rows.push_back(row * s.heads + unit.kv_head * s.per_kv() + j);
          context_begin.push_back(static_cast<int32_t>(context.begin));
          context_end.push_back(static_cast<int32_t>(context.end));
          own_begin.push_back(static_cast<int32_t>(at + own.begin));
          own_end.push_back(static_cast<int32_t>(at + own.end));
        }
      }
    }
    rows = round_up(static_cast<int64_t>(query_rows.size()), kStepK);
    for (std::vector<int32_t>* x : {&context_begin, &context_end, &own_begin, &own_end}) {
      x->resize(static_cast<size_t>(rows), 0);  // padding sees nothing
    }
  }
  int64_t count() const { return static_cast<int64_t>(query_rows.size()); }
  int64_t own_count() const { return static_cast<int64_t>(own_rows.size()); }

  std::vector<int64_t> query_rows;  // numbers of head rows in [N, K, H]
  std::vector<int64_t> own_rows;    // and in [N, K, G]
  std::vector<int32_t> context_begin, context_end, own_begin, own_end;
  int64_t rows = 0;  // with padding
};

/// Rows of `from` by number, one below the other, times `scale`.
inline TileSource gather(const float* from, const std::vector<int64_t>& rows, int64_t dim,
                         float scale, float* to) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* row = from + rows[i] * dim;
    float* out = to + static_cast<int64_t>(i) * dim;
    for (int64_t d = 0; d < dim; ++d) out[d] = row[d] * scale;
  }
  return {to, false, dim, static_cast<int64_t>(rows.size()), dim};
}

/// Largest unit, for the size of an arena.
struct Largest {
  int64_t rows = 0, own = 0;
};
inline Largest largest_unit(const Sizes& s, const std::vector<AttentionGroup>& groups) {
  int64_t blocks = 0;
  for (const AttentionGroup& group : groups) blocks = std::max(blocks, group.count);
  return {round_up(blocks * s.slots * s.per_kv(), kStepK), round_up(blocks * s.slots, kStepK)};
}

inline void product(const uint16_t* left, int64_t left_block, const uint16_t* right,
                    int64_t right_tile, TileProduct p) {
  p.left = left, p.left_block = left_block, p.right = right, p.right_tile = right_tile;
  kTileKernels.product(p);
}

/// Packs of a kv head's context: `count` rows, padded so that a chunk may end in the padding.
struct ContextPacks {
  ContextPacks(const Sizes& s, bool backward)
      : padded(round_up(s.context, kStepK)),
        size(padded * s.dim),
        data(at::empty({s.kv_heads * (backward ? 3 : 2) * size}, at::kBFloat16)),
        per_head((backward ? 3 : 2) * size) {}
  uint16_t* piece(int64_t kv_head, int64_t index) const {
    return reinterpret_cast<uint16_t*>(data.mutable_data_ptr<at::BFloat16>()) + kv_head * per_head +
           index * size;
  }
  int64_t padded, size;
  at::Tensor data;
  int64_t per_head;
};

/// One kv head of the context as rows of f32.
inline TileSource head_rows(const Sizes& s, const at::Tensor& x_TGE, int64_t kv_head) {
  return {x_TGE.const_data_ptr<float>() + kv_head * s.dim, false, s.kv_heads * s.dim, s.context,
          s.dim};
}

/// Keys, turned values; backward: keys, turned keys, values. By all threads of a parallel region.
inline void pack_context(const Sizes& s, const ContextPacks& packs, const at::Tensor& k_TGE,
                         const at::Tensor& v_TGE, bool backward) {
  const TileShare rows{0, packs.padded / kTile}, dims{0, s.dim / kTile};
#pragma omp for schedule(static) collapse(2)
  for (int64_t g = 0; g < s.kv_heads; ++g) {
    for (int64_t which = 0; which < 3; ++which) {
      const TileSource keys = head_rows(s, k_TGE, g), values = head_rows(s, v_TGE, g);
      if (which == 0) kTileKernels.left(keys, rows, packs.piece(g, 0));
      if (which == 1) {
        kTileKernels.left_transposed(backward ? keys : values, dims, packs.piece(g, 1));
      }
      if (which == 2 && backward) kTileKernels.left(values, rows, packs.piece(g, 2));
    }
  }
}

}  // namespace dflash::draft::tiles
