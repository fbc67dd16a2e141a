// The drafter's decoding side: packed products, contexts in key/value buffers, one block a
// sequence.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "draft/drafter.h"
#include "draft/layer.h"
#include "nn/norm.h"
#include "nn/shapes.h"

namespace dflash::draft {
namespace {

// Visible keys of every block row in one layer: context of its sequence, then its own block.
std::vector<nn::RowKeys> row_keys(const block::LayerRule& rule, const block::Blocks& blocks,
                                  const std::vector<const nn::KvBuffer*>& contexts,
                                  const nn::KvBuffer& own) {
  const int64_t size = blocks.block_size;
  std::vector<block::Span> slots;
  for (int64_t k = 0; k < size; ++k) slots.push_back(block::slot_span(rule, k, size));
  std::vector<nn::RowKeys> keys;
  keys.reserve(static_cast<size_t>(blocks.num_blocks * size));
  for (int64_t n = 0; n < blocks.num_blocks; ++n) {
    for (int64_t k = 0; k < size; ++k) {
      const block::Span span =
          block::context_span(rule, blocks.doc_begin_N[n], blocks.anchor_N[n], k);
      nn::RowKeys row;
      row.ranges[0] = {contexts[n], span.begin, span.end};
      row.ranges[1] = {&own, n * size + slots[k].begin, n * size + slots[k].end};
      keys.push_back(row);
    }
  }
  return keys;
}

nn::Linear packed(nn::Linear linear) {
  linear.pack();
  linear.drop_unpacked();
  return linear;
}

}  // namespace

void Drafter::pack() {
  const at::NoGradGuard no_grad;
  packed_fc_ = packed(fuse({fc_DF_}, {}, compute_));
  packed_context_kv_ = packed(context_products());
  for (const auto& layer : layers_) {
    const LayerProducts live = layer->products(compute_);
    layer->packed = {packed(live.qkv), packed(live.o), packed(live.gate_up), packed(live.down)};
  }
  packed_versions_.clear();
  for (const auto& [name, tensor] : parameters_) packed_versions_.push_back(tensor._version());
}

void Drafter::expect_packed() const {
  DF_ASSERT(!packed_versions_.empty(), "decoding before pack()");
  size_t i = 0;
  for (const auto& [name, tensor] : parameters_) {
    DF_ASSERT(tensor._version() == packed_versions_[i++], "{} changed after pack()", name);
  }
}

std::unique_ptr<SequenceContext> Drafter::new_context() const {
  auto context = std::make_unique<SequenceContext>();
  for (size_t l = 0; l < layers_.size(); ++l) {
    context->layers_.emplace_back(spec_.num_kv_heads, spec_.head_dim, compute_);
  }
  return context;
}

void SequenceContext::rewind(int64_t rows) {
  DF_ASSERT(rows >= 0 && rows <= length_, "rows={} length={}", rows, length_);
  length_ = rows;
}

void Drafter::append(std::span<SequenceContext* const> contexts, std::span<const int64_t> num_rows,
                     const at::Tensor& taps_RF, const at::Tensor& pos_R) const {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView plain;  // a third of an operator's cost is autograd's
  expect_packed();
  DF_ASSERT(contexts.size() == num_rows.size(), "{} contexts, {} counts", contexts.size(),
            num_rows.size());
  if (taps_RF.size(0) == 0) return;
  nn::expect_shape(taps_RF, {-1, fc_DF_.size(1)}, "tapped features");
  const auto rows = context_rows(multiply(packed_fc_, taps_RF), pos_R, [&](const at::Tensor& c_RD) {
    return split_context(multiply(packed_context_kv_, c_RD));
  });
  int64_t first = 0;
  for (size_t i = 0; i < contexts.size(); ++i) {
    SequenceContext& context = *contexts[i];
    for (size_t l = 0; l < layers_.size(); ++l) {
      context.layers_[l].write(context.length_, rows[l].first.narrow(0, first, num_rows[i]),
                               rows[l].second.narrow(0, first, num_rows[i]));
    }
    context.length_ += num_rows[i];
    first += num_rows[i];
  }
  DF_ASSERT(first == taps_RF.size(0), "{} rows of {} given to contexts", first, taps_RF.size(0));
}

at::Tensor Drafter::forward(std::span<SequenceContext* const> contexts, const block::Blocks& blocks,
                            const at::Tensor& embed_NKD) const {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView plain;
  expect_packed();
  const int64_t n = blocks.num_blocks, k = blocks.block_size, d = spec_.hidden_size;
  DF_ASSERT(static_cast<int64_t>(contexts.size()) == n, "{} contexts, {} blocks", contexts.size(),
            n);
  nn::expect_shape(embed_NKD, {n, k, d}, "block embeddings");
  for (int64_t i = 0; i < n; ++i) {
    // Any context shift lengthens or shortens what the block reads.
    const int64_t rows =
        block::context_span(spec_.rule.layers[0], blocks.doc_begin_N[i], blocks.anchor_N[i], k - 1)
            .end;
    DF_ASSERT(contexts[i]->length() >= rows, "context of {} rows, {} read", contexts[i]->length(),
              rows);
  }
  const at::Tensor pos_R = at::tensor(blocks.pos_NK, at::kLong);
  nn::KvBuffer own(spec_.num_kv_heads, spec_.head_dim, compute_);  // every layer overwrites it
  std::vector<const nn::KvBuffer*> buffers(contexts.size());

  at::Tensor h_RD = embed_NKD.reshape({n * k, d});
  for (size_t l = 0; l < layers_.size(); ++l) {
    const auto attend = [&](const at::Tensor& q_RHE, const at::Tensor& k_RGE,
                            const at::Tensor& v_RGE) {
      own.write(0, k_RGE, v_RGE);
      for (size_t i = 0; i < contexts.size(); ++i) buffers[i] = &contexts[i]->layers_[l];
      return nn::attend(q_RHE, row_keys(spec_.rule.layers[l], blocks, buffers, own));
    };
    h_RD = run_layer(spec_, *layers_[l], layers_[l]->packed, rope_, h_RD, pos_R, attend);
    observe(fmt::format("layers.{}.hidden", l), h_RD);
  }
  return finish(h_RD).view({n, k, d});
}

}  // namespace dflash::draft
