// Attention on AMX tiles against the dense twin in f64: bf16 operands, so relative errors of norms.
#include "draft/tile_attention.h"

#include <array>

#include "draft/attention_case.h"

namespace dflash::draft {
namespace {

class TileAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tile_attention_supported(nn::Compute::kBF16, 32)) GTEST_SKIP() << "no AMX";
  }
};

Case f32_case() {
  Case c{.k = 4, .h = 4, .g = 2, .e = 32};
  c.dtype = at::kFloat;
  return c;
}

double norm(const at::Tensor& x) {
  return x.to(at::kDouble).norm().item<double>();
}

/// Against the size of what is wanted, or of what the gradients are made of where they cancel.
double relative(const at::Tensor& got, const at::Tensor& want, double scale = 0) {
  return norm(got.to(at::kDouble) - want) / std::max(norm(want), scale);
}

/// Every operand is rounded once (2^-9 at most, a third of that on average), weights and slopes of
/// the softmax again: five roundings on the longest way, to the keys' gradient.
void compare(const Case& c, const std::string& what) {
  const BlockAttentionInputs in = c.inputs();
  Case exact = c;
  exact.dtype = at::kDouble;
  const BlockAttentionInputs in64 = exact.inputs();
  const at::Tensor dout = random_tensor(in.q_NKHE.sizes().vec(), 9, at::kDouble);
  const at::Tensor want = twin(exact, in64);
  const auto want_grads = gradients(want, in64, dout);
  const at::Tensor got = tile_attention(in, c.plan());
  const auto got_grads = gradients(got, in, dout.to(at::kFloat));
  constexpr double kBound = 3.2 / 512;
  EXPECT_LE(relative(got.detach(), want.detach()), kBound) << what << " output";
  const char* names[] = {"dq", "dk context", "dv context", "dk block", "dv block"};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_LE(relative(got_grads[i], want_grads[i], norm(dout) / 2), kBound)
        << what << " " << names[i];
  }
  const auto again = gradients(tile_attention(in, c.plan()), in, dout.to(at::kFloat));
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(again[i].equal(got_grads[i])) << what << names[i];
}

TEST_F(TileAttention, EqualsTheDenseTwinForEveryRule) {  // R-MASK-1, R-MASK-5
  for (const LayerRule& rule : all_rules()) {
    Case c = f32_case();
    c.rule = rule;
    compare(c, describe(rule));
  }
}

TEST_F(TileAttention, ShapesAndUnsortedAnchors) {
  for (const auto& [k, h, g, e] : std::vector<std::array<int64_t, 4>>{
           {2, 1, 1, 32}, {3, 9, 3, 64}, {16, 4, 4, 32}, {5, 6, 1, 96}, {40, 3, 1, 32}}) {
    Case c{.k = k, .h = h, .g = g, .e = e};
    c.dtype = at::kFloat;
    c.anchors = {20, 0, 11, 7, 3, 3, 24};  // 7 is a document of one token, 3 appears twice
    compare(c, fmt::format("K {} H {} G {} E {}", k, h, g, e));
  }
}

/// More keys than a chunk holds, groups that end in the middle of a tile.
TEST_F(TileAttention, LongContext) {
  for (const int64_t window : {0, 150}) {
    Case c{.k = 8, .h = 6, .g = 2, .e = 64, .row = TestRow({290, 40, 170})};
    c.dtype = at::kFloat;
    c.rule.window = window;
    c.anchors.clear();
    for (int64_t a = 0; a < 499; a += 9) c.anchors.push_back(a);
    compare(c, fmt::format("window {}", window));
  }
}

/// Values that nobody sees may be anything finite.
TEST_F(TileAttention, OtherDocumentsAndLaterRowsDoNotExist) {  // R-MASK-6
  Case c = f32_case();
  c.anchors = {2, 10};  // documents 0 and 2 (rows 8..19)
  const BlockAttentionInputs in = c.inputs();
  const at::Tensor want = tile_attention(in, c.plan());
  const c10::NoGradGuard no_grad;
  for (const int64_t row : {2, 3, 7, 10, 15, 22}) {
    in.k_TGE[row].fill_(1e15);
    in.v_TGE[row].fill_(-1e15);
  }
  EXPECT_TRUE(tile_attention(in, c.plan()).equal(want));
}

/// What is not a number reaches the rows that see it, and no other block.
TEST_F(TileAttention, NotANumberIsSeen) {
  Case c = f32_case();
  c.anchors = {3, 20};
  const BlockAttentionInputs in = c.inputs();
  const c10::NoGradGuard no_grad;
  in.q_NKHE[0][1].fill_(NAN);
  const at::Tensor out = tile_attention(in, c.plan());
  EXPECT_TRUE(out[0][1].isnan().all().item<bool>());
  EXPECT_TRUE(out[1].isfinite().all().item<bool>());
}

TEST_F(TileAttention, NoBlocks) {
  Case c = f32_case();
  c.anchors = {};
  const BlockAttentionInputs in = c.inputs();
  const at::Tensor out = tile_attention(in, c.plan());
  EXPECT_EQ(out.sizes(), in.q_NKHE.sizes());
}

}  // namespace
}  // namespace dflash::draft
