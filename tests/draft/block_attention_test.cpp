// The training attention against its slow twin (dense mask softmax), by finite differences, and the
// mask recipes R-MASK-1, R-MASK-5 as seen from the outside.
#include "draft/block_attention.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

#include "draft/attention_case.h"

namespace dflash::draft {
namespace {

void compare_with_twin(const Case& c, int64_t tile_scores, double bound, const std::string& what) {
  const BlockAttentionInputs in = c.inputs();
  const at::Tensor dout = random_tensor(in.q_NKHE.sizes().vec(), 9, c.dtype);
  const at::Tensor want = twin(c, in);
  const auto want_grads = gradients(want, in, dout);
  const at::Tensor got = block_attention(in, c.plan(tile_scores));
  const auto got_grads = gradients(got, in, dout);
  expect_close(got, want, bound, what + " output");
  const char* names[] = {"dq", "dk context", "dv context", "dk block", "dv block"};
  for (size_t i = 0; i < 5; ++i) {
    expect_close(got_grads[i], want_grads[i], bound, what + " " + names[i]);
  }
}

TEST(BlockAttention, EqualsTheDenseTwinForEveryRule) {  // R-MASK-1, R-MASK-5
  for (const LayerRule& rule : all_rules()) {
    Case c;
    c.rule = rule;
    for (const int64_t tile_scores : {1, 200, 1 << 19}) {  // one block a tile, some, all
      compare_with_twin(c, tile_scores, 1e-12,
                        fmt::format("{} tile {}", describe(rule), tile_scores));
    }
  }
}

TEST(BlockAttention, ShapesAndUnsortedAnchors) {
  for (const auto& [k, h, g, e] : std::vector<std::array<int64_t, 4>>{
           {2, 1, 1, 2}, {3, 9, 3, 16}, {16, 4, 4, 8}, {5, 6, 1, 10}}) {
    Case c{.k = k, .h = h, .g = g, .e = e};
    c.anchors = {20, 0, 11, 7, 3, 3, 24};  // 7 is a document of one token, 3 appears twice
    compare_with_twin(c, 1 << 19, 1e-12, fmt::format("K {} H {} G {} E {}", k, h, g, e));
  }
}

TEST(BlockAttention, SingleBlockWithEmptyContext) {
  Case c;
  c.anchors = {0};
  compare_with_twin(c, 1 << 19, 1e-12, "anchor 0");
}

TEST(BlockAttention, F32WithinRounding) {
  Case c{.k = 8, .h = 6, .g = 2, .e = 32, .row = TestRow({90, 40, 70}), .dtype = at::kFloat};
  c.anchors.clear();
  for (int64_t a = 0; a < 199; a += 7) c.anchors.push_back(a);
  for (const LayerRule& rule : {LayerRule{}, LayerRule{20, Bound::kQuery, InBlock::kCausal}}) {
    c.rule = rule;
    // c * eps * norm: sums of up to ~200 products of unit-normal values, and their gradients.
    compare_with_twin(c, 1 << 12, 64 * 1.2e-7 * 4, describe(rule));
  }
}

TEST(BlockAttention, FiniteDifferences) {
  Case c{.k = 3, .h = 2, .g = 1, .e = 4, .row = TestRow({4, 6})};
  c.anchors = {0, 2, 5, 8};
  c.rule = {3, Bound::kQuery, InBlock::kCausal};
  const BlockAttentionInputs in = c.inputs();
  const auto plan = c.plan(40);
  const at::Tensor dout = random_tensor(in.q_NKHE.sizes().vec(), 9, at::kDouble);
  const auto grads = gradients(block_attention(in, plan), in, dout);
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor> inputs = {in.q_NKHE, in.k_TGE, in.v_TGE, in.k_NKGE, in.v_NKGE};
  const double step = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    double* values = inputs[i].data_ptr<double>();
    at::Tensor numeric = at::zeros_like(inputs[i]);
    for (int64_t j = 0; j < inputs[i].numel(); ++j) {
      const double kept = values[j];
      values[j] = kept + step;
      const double above = (block_attention(in, plan) * dout).sum().item<double>();
      values[j] = kept - step;
      const double below = (block_attention(in, plan) * dout).sum().item<double>();
      values[j] = kept;
      numeric.data_ptr<double>()[j] = (above - below) / (2 * step);
    }
    expect_close(grads[i], numeric, 1e-8, fmt::format("input {}", i));
  }
}

TEST(BlockAttention, OtherDocumentsAndLaterRowsDoNotExist) {  // R-MASK-6
  Case c;
  c.anchors = {2, 10};  // documents 0 and 2 (rows 8..19)
  BlockAttentionInputs in = c.inputs();
  const at::Tensor want = block_attention(in, c.plan());
  const c10::NoGradGuard no_grad;
  for (const int64_t row : {2, 3, 7, 10, 15, 22}) {
    in.k_TGE[row].fill_(NAN);
    in.v_TGE[row].fill_(NAN);
  }
  EXPECT_TRUE(block_attention(in, c.plan()).equal(want));
}

TEST(BlockAttention, NoBlocks) {
  Case c;
  c.anchors = {};
  const BlockAttentionInputs in = c.inputs();
  const at::Tensor out = block_attention(in, c.plan());
  EXPECT_EQ(out.sizes(), in.q_NKHE.sizes());
  out.sum().backward();
}

TEST(BlockAttention, GradientsOnlyWhereAsked) {
  Case c;
  const at::Tensor dout = random_tensor(c.inputs().q_NKHE.sizes().vec(), 9, c.dtype);
  const BlockAttentionInputs all = c.inputs();
  const auto want = gradients(block_attention(all, c.plan()), all, dout);
  for (const std::vector<size_t>& asked :
       std::vector<std::vector<size_t>>{{0}, {1}, {2}, {1, 2}, {3}, {3, 4}, {0, 1, 2}}) {
    const BlockAttentionInputs in = c.inputs();
    const at::Tensor* x[] = {&in.q_NKHE, &in.k_TGE, &in.v_TGE, &in.k_NKGE, &in.v_NKGE};
    for (const at::Tensor* tensor : x) tensor->set_requires_grad(false);
    for (const size_t i : asked) x[i]->set_requires_grad(true);
    block_attention(in, c.plan()).backward(dout);
    for (size_t i = 0; i < 5; ++i) {
      const bool is_asked = std::find(asked.begin(), asked.end(), i) != asked.end();
      ASSERT_EQ(x[i]->grad().defined(), is_asked) << i;
      if (is_asked) expect_close(x[i]->grad(), want[i], 1e-12, fmt::format("input {}", i));
    }
  }
}

TEST(BlockAttention, RefusesASecondDerivativeAndOtherTypes) {
  Case c;
  BlockAttentionInputs in = c.inputs();
  const at::Tensor out = block_attention(in, c.plan());
  EXPECT_THROW(out.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true),
               std::exception);
  in.v_TGE = in.v_TGE.to(at::kFloat);
  EXPECT_THROW(block_attention(in, c.plan()), std::exception);
  in = c.inputs();
  in.q_NKHE = in.q_NKHE[0];
  EXPECT_THROW(block_attention(in, c.plan()), Error);
}

TEST(AttentionPlan, TilesStayNearTheirWindows) {
  Case c{.k = 4, .row = TestRow({4000})};
  c.anchors.clear();
  for (int64_t a = 100; a < 4000; a += 100) c.anchors.push_back(a);
  c.rule = {16, Bound::kQuery, InBlock::kCausal};
  int64_t scores = 0;
  const auto plan = c.plan();
  for (const AttentionPlan::Tile& tile : plan->tiles()) {
    scores += tile.num_blocks * (tile.context.end - tile.context.begin);
  }
  EXPECT_LE(scores, 39 * 128 * 2);  // the dense mask would have 39 * 4000
}

}  // namespace
}  // namespace dflash::draft
