// Tile products against f32 products of operands rounded to bf16, over ragged shapes.
#include "nn/gemm_bf16.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace dflash::nn {
namespace {

class TileProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tile_products_supported(Compute::kBF16)) GTEST_SKIP() << "no AMX";
    at::manual_seed(3);
  }
};

at::Tensor rounded(const at::Tensor& x) {
  return x.to(at::kBFloat16).to(at::kFloat);
}

/// |got - want| <= c * eps(f32) * sum |a||b|.
void expect_product(const at::Tensor& got, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  const at::Tensor bound = at::mm(a.abs(), b.abs()) * (8 * 1.2e-7) + 1e-30;
  const double worst = ((got.to(at::kDouble) - want).abs() / bound).max().item<double>();
  EXPECT_LE(worst, 1.0) << a.sizes() << " x " << b.sizes();
}

TEST_F(TileProducts, EveryPackingOfEveryShape) {
  for (const int64_t m : {1, 16, 17, 33, 130}) {
    for (const int64_t n : {1, 16, 31, 64, 97}) {
      for (const int64_t k : {1, 31, 32, 65, 600, 1100}) {
        const at::Tensor a = at::randn({m, k}), b = at::randn({k, n});
        const at::Tensor a_r = rounded(a), b_r = rounded(b);
        const at::Tensor a_t = a.t().contiguous(), b_t = b.t().contiguous();
        at::Tensor c = at::full({m, n}, 7.0, at::kFloat);
        multiply_tiles(left_operand(a), right_operand(b), Into::kSet, c);
        expect_product(c, a_r, b_r);
        const at::Tensor once = c.clone();
        multiply_tiles(left_operand_of_transposed(a_t.to(at::kBFloat16)),
                       right_operand_of_transposed(b_t.to(at::kBFloat16)), Into::kSet, c);
        EXPECT_TRUE(c.equal(once)) << m << " " << n << " " << k;
        // What was packed as a left operand, as a right one: a^T x (a b).
        at::Tensor back = at::zeros({k, n}, at::kFloat);
        multiply_tiles(left_operand_of_transposed(a), right_operand(once), Into::kSet, back);
        expect_product(back, a_r.t(), rounded(once));
        at::Tensor from_left = at::zeros({n, k}, at::kFloat);
        multiply_tiles(left_operand_of_transposed(once), right_operand_of_left(left_operand(a)),
                       Into::kSet, from_left);
        EXPECT_TRUE(from_left.t().equal(back) || (from_left.t() - back).abs().max().item<double>() <
                                                     1e-5 * back.abs().max().item<double>());
        multiply_tiles(left_operand(a), right_operand(b), Into::kAdd, c);
        expect_product(c - once, a_r, b_r);
      }
    }
  }
}

TEST_F(TileProducts, SymmetricOnesByHalf) {
  for (const int64_t m : {1, 15, 16, 33, 64, 200}) {
    for (const int64_t k : {3, 64, 1030}) {
      const at::Tensor x = at::randn({m, k});
      at::Tensor c = at::full({m, m}, 7.0, at::kFloat), full = c.clone();
      multiply_symmetric_tiles(left_operand(x), right_operand_of_transposed(x), c);
      multiply_tiles(left_operand(x), right_operand_of_transposed(x), Into::kSet, full);
      expect_product(c, rounded(x), rounded(x).t());
      EXPECT_TRUE(c.equal(c.t()));
      EXPECT_TRUE(c.triu().equal(full.triu()));
    }
  }
}

/// Gradients as the sums say, from rounded operands.
TEST_F(TileProducts, InTheGraph) {
  for (const Results results : {Results::kSeparate, Results::kJoined}) {
    const at::Tensor x = at::randn({45, 96}).requires_grad_(true);
    const std::vector<at::Tensor> weights = {at::randn({64, 96}).requires_grad_(true),
                                             at::randn({40, 96}).requires_grad_(true)};
    const auto y = tile_products(x, weights, results);
    const at::Tensor joined = results == Results::kJoined ? y[0] : at::cat({y[0], y[1]}, 1);
    const at::Tensor w = at::cat({weights[0], weights[1]}).detach();
    expect_product(joined.detach(), rounded(x.detach()), rounded(w).t());
    const at::Tensor dy = at::randn({45, 104});
    joined.backward(dy);
    const at::Tensor dw = at::cat({weights[0].grad(), weights[1].grad()});
    expect_product(dw, rounded(dy).t(), rounded(x.detach()));
    expect_product(x.grad(), rounded(dy), rounded(w));
  }
}

TEST_F(TileProducts, RowsOfAWiderTensorAndOnlyWantedGradients) {
  const at::Tensor wide = at::randn({20, 80});
  const at::Tensor weight = at::randn({8, 40}).requires_grad_(true);
  const auto y = tile_products(wide.narrow(1, 40, 40), {weight}, Results::kSeparate);
  expect_product(y[0].detach(), rounded(wide.narrow(1, 40, 40)), rounded(weight.detach()).t());
  y[0].backward(at::ones({20, 8}));
  expect_product(weight.grad(), at::ones({8, 20}), rounded(wide.narrow(1, 40, 40)));
}

}  // namespace
}  // namespace dflash::nn
