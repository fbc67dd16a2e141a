// rms_norm, swiglu, rope, tables: values against f64, hand-written backward passes against
// autograd of the f64 form, frequency tables.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/head.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "nn_test_tools.h"

namespace dflash::nn {
namespace {

using Op = std::function<at::Tensor(const at::Tensor&)>;

/// op on f32 x: value without grad, value and dx under grad, all against op on f64 x.
void check_op(const Op& op, const at::Tensor& x, double bound) {
  const at::Tensor exact = x.to(at::kDouble).requires_grad_();
  const at::Tensor expected = op(exact), dy = at::randn(expected.sizes());
  expected.backward(dy.to(at::kDouble));
  {
    const c10::NoGradGuard no_grad;
    expect_close(op(x), expected, bound);
  }
  const at::Tensor leaf = x.clone().requires_grad_();
  const at::Tensor y = op(leaf);
  y.backward(dy);
  expect_close(y, expected, bound);
  expect_close(leaf.grad(), exact.grad(), 4 * bound);
}

TEST(Rows, NormAgreesWithF64) {
  for_every_isa([&](Isa) {
    for (const int64_t width : {1, 7, 16, 33, 64, 576}) {
      const at::Tensor w = at::randn({width});
      // The largest values are about 4 * 4: 16 roundings of them.
      check_op([&](const at::Tensor& x) { return rms_norm(x, w.to(x.scalar_type()), 1e-5); },
               at::randn({9, width}), 256 * kEps32);
    }
  });
}

TEST(Rows, NormGivesTheWeightsTheirGradient) {
  for (const int64_t rows : {1, 256, 700}) {
    const at::Tensor x = at::randn({rows, 40}), w = at::randn({40}).requires_grad_();
    const at::Tensor exact = w.detach().to(at::kDouble).requires_grad_();
    const at::Tensor dy = at::randn({rows, 40});
    rms_norm(x, w, 1e-5).backward(dy);
    rms_norm(x.to(at::kDouble), exact, 1e-5).backward(dy.to(at::kDouble));
    expect_close(w.grad(), exact.grad(), 64 * kEps32 * std::sqrt(double(rows)));
    const at::Tensor frozen = at::randn({40});
    rms_norm(at::randn({3, 40}).requires_grad_(), frozen, 1e-5).sum().backward();
    EXPECT_FALSE(frozen.grad().defined());
  }
}

TEST(Rows, NormReadsHeadsOfAWiderTensor) {
  const c10::NoGradGuard no_grad;
  const at::Tensor wide = at::randn({5, 7, 32}), w = at::randn({32});
  const at::Tensor slice = wide.narrow(1, 2, 3);
  EXPECT_TRUE(at::equal(rms_norm(slice, w, 1e-6), rms_norm(slice.contiguous(), w, 1e-6)));
}

// R-EX-10: the plain norm multiplies by w, so w = 0 gives 0 (the (1 + w) form would not).
TEST(Rows, NormIsThePlainOne) {
  const at::Tensor x = at::tensor({3.F, 4.F}).view({1, 2});
  EXPECT_TRUE(at::equal(rms_norm(x, at::zeros({2}), 0), at::zeros({1, 2})));
  expect_close(rms_norm(x, at::ones({2}), 0), at::tensor({.848528, 1.131371}).view({1, 2}), 1e-6);
}

TEST(Rows, SwigluAgreesWithF64) {
  for_every_isa([&](Isa) {
    for (const int64_t width : {1, 5, 16, 40, 300}) {
      check_op(swiglu, at::randn({2, 3, 2 * width}) * 3, 256 * kEps32);
    }
  });
  const c10::NoGradGuard no_grad;
  const at::Tensor far = at::tensor({-200.F, 200.F, -90.F, 1.F, 1.F, 1.F}).view({1, 6});
  expect_close(swiglu(far), at::tensor({0.F, 200.F, 0.F}).view({1, 3}), 1e-30);
}

TEST(Rows, LogisticGateReadsSlices) {
  const at::Tensor wide = at::randn({5, 90}) * 4;
  for_every_isa([&](Isa) {
    for (const int64_t width : {1, 16, 37}) {
      const at::Tensor x = wide.narrow(1, 3, width), gate = wide.narrow(1, 50, width);
      const at::Tensor want = x.to(at::kDouble) / ((-gate.to(at::kDouble)).exp() + 1);
      expect_close(logistic_gate(x, gate), want, 64 * kEps32);
    }
  });
}

TEST(Rows, RopeAgreesWithF64) {
  const Rope rope({.theta = 10000}, 20);
  const at::Tensor positions = at::tensor({0, 1, 77, 5000, 300000, 2}, at::kLong);
  for_every_isa([&](Isa) {
    check_op([&](const at::Tensor& x) { return rope.apply(x, positions); }, at::randn({6, 3, 20}),
             64 * kEps32);
    check_op(
        [&](const at::Tensor& x) {
          return rope.apply(x, positions.view({2, 3}));
        },
        at::randn({2, 3, 2, 20}), 64 * kEps32);
  });
  const at::Tensor wide = at::randn({6, 9, 20}), slice = wide.narrow(1, 2, 4);
  EXPECT_TRUE(at::equal(rope.apply(slice, positions), rope.apply(slice.contiguous(), positions)));
}

// R-DEC-10: scores depend on the distance of positions only.
TEST(Rows, RopeScoresAreShiftInvariant) {
  const Rope rope({.theta = 10000}, 64);
  const at::Tensor q = at::randn({1, 1, 64}), k = at::randn({1, 1, 64});
  const auto score = [&](int64_t at_q, int64_t at_k) {
    const at::Tensor rotated = rope.apply(q, at::tensor({at_q}, at::kLong));
    return (rotated * rope.apply(k, at::tensor({at_k}, at::kLong))).sum().item<double>();
  };
  // Angles are rounded to f32 after cos and sin: 64 terms of size 1.
  EXPECT_NEAR(score(9, 2), score(1009, 1002), 256 * kEps32);
  EXPECT_NEAR(score(0, 40), score(1000, 1040), 256 * kEps32);
}

void expect_frequencies(const RopeConfig& config, int64_t dim, std::vector<double> expected) {
  const std::vector<double> got = Rope(config, dim).inverse_frequencies();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9 * expected[i]);
}

// R-EX-3: dim 4, base 10000 -> [1, .01]; base 1e6 -> [1, .001].
TEST(Rows, RopeFrequencies) {
  expect_frequencies({.theta = 1e4}, 4, {1, .01});
  expect_frequencies({.theta = 1e6}, 4, {1, .001});
  // llama3 with original length 2 pi 1000: waves of 2 pi / f positions are 1000 f turns long, so
  // f = 1 and .1 are kept (1000 and 100 turns > 4), 1e-4 (.1 turn < 1) is slowed by 8, and the
  // ramp between takes 10^-2.5 (3.16 turns): s = (3.1623 - 1) / 3.
  const double f = std::pow(10, -2.5), s = (1000 * f - 1) / 3;
  const RopeConfig llama3{.theta = 1e5,
                          .scaling = "llama3",
                          .factor = 8,
                          .original_max_positions = 2000 * 3.14159265358979323846};
  expect_frequencies(llama3, 4, {1, (1 - s) * f / 8 + s * f});
  RopeConfig slow = llama3;
  slow.theta = 1e8;
  expect_frequencies(slow, 4, {1, 1e-4 / 8});
  EXPECT_THROW(Rope({.scaling = "dynamic"}, 4), Error);
  EXPECT_THROW(Rope({}, 5), Error);
}

// R-EX-4: dim 8, base 10000, factor 4, original 64, betas 32 and 1.
TEST(Rows, RopeOfYarnAndLinearScaling) {
  const RopeConfig yarn{.theta = 1e4, .scaling = "yarn", .factor = 4, .original_max_positions = 64};
  expect_frequencies(yarn, 8, {1, .0625, .0025, .00025});
  EXPECT_NEAR(yarn_attention_factor(4), 1.138629, 1e-6);
  EXPECT_NEAR(yarn_attention_factor(64), 1.415888, 1e-6);
  EXPECT_EQ(yarn_attention_factor(4, 0.7, 0.7), 1);
  expect_frequencies({.theta = 1e4, .scaling = "linear", .factor = 4}, 4, {.25, .0025});
}

// R-EX-3: a quarter of the head is rotated, with the frequencies of that quarter; the attention
// factor stretches what is rotated only.
TEST(Rows, RopeOfAPartOfTheHead) {
  const Rope part({.theta = 1e4, .attention_factor = 2, .rotary_dim = 16}, 64);
  const Rope alone({.theta = 1e4}, 16);
  const at::Tensor positions = at::tensor({0, 3, 77}, at::kLong), wide = at::randn({3, 9, 64});
  for (const at::Tensor& x : {wide, wide.narrow(1, 2, 4)}) {
    const at::Tensor got = part.apply(x, positions);
    expect_close(got.narrow(-1, 0, 16), alone.apply(x.narrow(-1, 0, 16), positions) * 2,
                 8 * kEps32);
    EXPECT_TRUE(at::equal(got.narrow(-1, 16, 48), x.narrow(-1, 16, 48)));
  }
  check_op([&](const at::Tensor& x) { return part.apply(x, positions); }, at::randn({3, 2, 64}),
           64 * kEps32);
  EXPECT_THROW(Rope({.rotary_dim = 5}, 8), Error);
  EXPECT_THROW(Rope({.rotary_dim = 10}, 8), Error);
}

TEST(Rows, TableRefusesForeignIds) {
  const at::Tensor weight = at::randn({5, 3});
  for (const at::Tensor& w : {weight, weight.to(at::kBFloat16)}) {
    const Table table{w};
    const at::Tensor ids = at::tensor({4, 0, 4, 1}, at::kLong).view({2, 2});
    EXPECT_TRUE(at::equal(table.embed(ids)[0][0], w[4].to(at::kFloat)));
    EXPECT_TRUE(at::equal(table.embed(ids)[1][1], w[1].to(at::kFloat)));
    EXPECT_THROW(table.embed(at::tensor({5}, at::kLong)), Error);
    EXPECT_THROW(table.embed(at::tensor({-1}, at::kLong)), Error);
  }
}

// R-EX-6: tied table rows (1,0) (0,1) (1,1), hidden (2,3) -> logits 2, 3, 5; padding is -inf.
TEST(Rows, HeadOfATiedTable) {
  const c10::NoGradGuard no_grad;
  const at::Tensor weight = at::tensor({1.F, 0.F, 0.F, 1.F, 1.F, 1.F, 9.F, 9.F}).view({4, 2});
  for (const Compute compute : {Compute::kF32, Compute::kBF16}) {
    Head head{Linear(weight, {}, compute), {}, 3};
    head.linear.pack();
    const at::Tensor hidden = at::tensor({2.F, 3.F}).view({1, 2}), logits = head.logits(hidden);
    EXPECT_TRUE(at::equal(logits.narrow(1, 0, 3), at::tensor({2.F, 3.F, 5.F}).view({1, 3})));
    EXPECT_TRUE(std::isinf(logits[0][3].item<float>()) && logits[0][3].item<float>() < 0);
    EXPECT_EQ(head.argmax(hidden).item<int64_t>(), 2);
    head.id_V = at::tensor({7, 8, 30, 40}, at::kLong);
    EXPECT_EQ(head.argmax(hidden).item<int64_t>(), 40);
  }
}

}  // namespace
}  // namespace dflash::nn
