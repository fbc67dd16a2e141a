// Time of the drafter's training attention, forward and backward, in f32.
//   draft_attention_bench [anchors] [context] [block size] [window]
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>

#include <cstdio>
#include <cstdlib>

#include "base/timer.h"
#include "draft/block_attention.h"

int main(int argc, char** argv) {
  using namespace dflash;
  const auto argument = [&](int i, int64_t other) {
    return argc > i ? std::atoll(argv[i]) : other;
  };
  const int64_t n = argument(1, 128), t = argument(2, 2048), k = argument(3, 16);
  const block::LayerRule rule{argument(4, 0)};
  constexpr int64_t kHeads = 9, kKvHeads = 3, kDim = 64;
  block::Blocks blocks;
  blocks.num_blocks = n;
  blocks.block_size = k;
  for (int64_t i = 0; i < n; ++i) {
    blocks.doc_begin_N.push_back(0);
    blocks.anchor_N.push_back((i + 1) * t / (n + 1));
  }
  const draft::BlockAttentionInputs in{.q_NKHE = at::randn({n, k, kHeads, kDim}),
                                       .k_TGE = at::randn({t, kKvHeads, kDim}),
                                       .v_TGE = at::randn({t, kKvHeads, kDim}),
                                       .k_NKGE = at::randn({n, k, kKvHeads, kDim}),
                                       .v_NKGE = at::randn({n, k, kKvHeads, kDim})};
  for (const at::Tensor* x : {&in.q_NKHE, &in.k_TGE, &in.v_TGE, &in.k_NKGE, &in.v_NKGE}) {
    x->set_requires_grad(true);
  }
  const auto plan = std::make_shared<draft::AttentionPlan>(blocks, rule, kHeads / kKvHeads);
  int64_t scores = 0;
  for (const auto& tile : plan->tiles()) {
    scores += tile.num_blocks * k * kHeads * (tile.context.end - tile.context.begin);
  }
  for (int round = 0; round < 4; ++round) {
    const Timer forward;
    const at::Tensor out = draft::block_attention(in, plan);
    const double forward_s = forward.seconds();
    const Timer backward;
    out.backward(at::ones_like(out));
    std::printf("%zu tiles, %.1f M scores: forward %.1f ms, backward %.1f ms, %.0f GFLOP/s\n",
                plan->tiles().size(), scores / 1e6, forward_s * 1e3, backward.seconds() * 1e3,
                scores * kDim * 14.0 / 1e9 / (forward_s + backward.seconds()));
  }
}
