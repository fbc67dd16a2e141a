// A small attention problem, its dense twin (the mask written out pair by pair from block/), and
// gradients by autograd.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/softmax.h>

#include <memory>
#include <vector>

#include "draft/block_attention.h"
#include "draft/fixtures.h"

namespace dflash::draft {

using block::Bound;
using block::InBlock;
using block::LayerRule;

struct Case {
  int64_t k = 4, h = 4, g = 2, e = 8;
  TestRow row{{7, 1, 12, 5}};
  std::vector<int64_t> anchors{0, 3, 8, 10, 11, 18, 20, 22};
  LayerRule rule = {};
  at::ScalarType dtype = at::kDouble;

  block::Blocks blocks() const {
    block::BlockRule block_rule{.block_size = k, .mask_id = 1, .slot_shift = 0, .layers = {rule}};
    return block::training_blocks(block_rule, row.packed(), anchors);
  }
  BlockAttentionInputs inputs() const {
    const int64_t n = static_cast<int64_t>(anchors.size()), t = row.size();
    BlockAttentionInputs in{.q_NKHE = random_tensor({n, k, h, e}, 1, dtype),
                            .k_TGE = random_tensor({t, g, e}, 2, dtype),
                            .v_TGE = random_tensor({t, g, e}, 3, dtype),
                            .k_NKGE = random_tensor({n, k, g, e}, 4, dtype),
                            .v_NKGE = random_tensor({n, k, g, e}, 5, dtype)};
    for (at::Tensor* x : {&in.q_NKHE, &in.k_TGE, &in.v_TGE, &in.k_NKGE, &in.v_NKGE}) {
      x->set_requires_grad(true);
    }
    return in;
  }
  std::shared_ptr<const AttentionPlan> plan(int64_t tile_scores = 1 << 19) const {
    return std::make_shared<AttentionPlan>(blocks(), rule, h / g, tile_scores);
  }
};

// [N*K, T + N*K], written out pair by pair from block/.
inline at::Tensor dense_mask(const Case& c) {
  const block::Blocks b = c.blocks();
  const int64_t t = c.row.size(), nk = b.num_blocks * c.k;
  at::Tensor mask = at::zeros({nk, t + nk}, at::kBool);
  auto visible = mask.accessor<bool, 2>();
  for (int64_t q = 0; q < nk; ++q) {
    const int64_t n = q / c.k, slot = q % c.k;
    const block::Span span = context_span(c.rule, b.doc_begin_N[n], b.anchor_N[n], slot);
    for (int64_t key = span.begin; key < span.end; ++key) visible[q][key] = true;
    for (int64_t key = 0; key < c.k; ++key) {
      if (sees_slot(c.rule, slot, key)) visible[q][t + n * c.k + key] = true;
    }
  }
  return mask;
}

inline at::Tensor twin(const Case& c, const BlockAttentionInputs& in) {
  const int64_t n = in.q_NKHE.size(0), nk = n * c.k;
  const auto keys = [&](const at::Tensor& context, const at::Tensor& own) {
    return at::cat({context, own.reshape({nk, c.g, c.e})}).repeat_interleave(c.h / c.g, 1);
  };
  const at::Tensor k = keys(in.k_TGE, in.k_NKGE), v = keys(in.v_TGE, in.v_NKGE);
  at::Tensor scores = at::einsum("qhe,khe->hqk", {in.q_NKHE.reshape({nk, c.h, c.e}), k}) /
                      std::sqrt(static_cast<double>(c.e));
  scores = scores.masked_fill(dense_mask(c).logical_not(), -INFINITY);
  return at::einsum("hqk,khe->qhe", {at::softmax(scores, -1), v}).reshape({n, c.k, c.h, c.e});
}

inline std::vector<at::Tensor> gradients(const at::Tensor& out, const BlockAttentionInputs& in,
                                         const at::Tensor& dout) {
  for (const at::Tensor& x : {in.q_NKHE, in.k_TGE, in.v_TGE, in.k_NKGE, in.v_NKGE}) {
    x.mutable_grad().reset();
  }
  out.backward(dout);
  std::vector<at::Tensor> grads;
  for (const at::Tensor& x : {in.q_NKHE, in.k_TGE, in.v_TGE, in.k_NKGE, in.v_NKGE}) {
    grads.push_back(x.grad().defined() ? x.grad().clone() : at::zeros_like(x));
  }
  return grads;
}

inline std::vector<LayerRule> all_rules() {
  std::vector<LayerRule> rules;
  for (const int64_t window : {0, 1, 3, 100}) {
    for (const Bound bound : {Bound::kQuery, Bound::kAnchor}) {
      for (const InBlock in_block : {InBlock::kBidirectional, InBlock::kCausal}) {
        rules.push_back({window, bound, in_block});
      }
    }
  }
  return rules;
}

}  // namespace dflash::draft
