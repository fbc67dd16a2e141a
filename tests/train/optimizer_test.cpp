#include "train/optimizer.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/gemm_bf16.h"
#include "train/orthogonal.h"
#include "train/schedule.h"

namespace dflash::train {
namespace {

at::Tensor leaf(const at::Tensor& value) {
  return value.clone().requires_grad_(true);
}

// R-TR-1
TEST(Schedule, WarmUpThenCosine) {
  const double want[] = {.25,     .5,      .75, 1,       1,       .96194,
                         .853553, .691342, .5,  .308658, .146447, .03806};
  const Schedule schedule{.total_steps = 12, .warmup_steps = 4};
  for (int64_t s = 0; s < 12; ++s) EXPECT_NEAR(schedule.factor(s), want[s], 1e-5) << s;
  EXPECT_EQ(make_schedule(1000, 0.04).warmup_steps, 40);
  EXPECT_EQ(make_schedule(3, 0.04).warmup_steps, 1);
  EXPECT_EQ(make_schedule(0, 0.04).warmup_steps, 0);
  EXPECT_EQ(plan_steps(1000.0, 60.0, 256), 234);
  EXPECT_EQ(plan_steps(1.0, 1.0, 256), 10);
}

TEST(Schedule, AnotherLengthBendsTheRestWithoutAJump) {
  Schedule schedule = make_schedule(100, 0.1);
  const Schedule before = schedule;
  schedule.refit(5, 80);  // within warm-up: as if it had been so from the start
  EXPECT_EQ(schedule.factor(45), make_schedule(80, 0.1).factor(45));
  schedule = before;
  for (const int64_t total : {60, 200}) {
    schedule.refit(50, total);
    EXPECT_NEAR(schedule.factor(50), before.factor(50), 1e-12) << total;
    for (int64_t s = 50; s + 1 < total; ++s) {
      EXPECT_GT(schedule.factor(s), schedule.factor(s + 1)) << total << " step " << s;
    }
    EXPECT_LT(schedule.factor(total - 1), 0.1) << total;
    EXPECT_NEAR(schedule.factor(total), 0, 1e-12) << total;
  }
}

// R-TR-2: a bf16 master would stay at 1.0.
TEST(Optimizer, MasterIsF32) {
  const at::Tensor weight = leaf(at::ones({3}, at::kFloat));
  OptimizerOptions options;
  options.lr = 1e-4;
  options.eps = 0;
  options.clip_norm = 0;
  Optimizer optimizer({{"w", weight}}, options, nn::Compute::kBF16);
  at::Tensor bf16 = at::ones({3}, at::kBFloat16);
  for (int i = 0; i < 1000; ++i) {
    weight.mutable_grad() = at::full({3}, -1.0, at::kFloat);
    ASSERT_TRUE(optimizer.update(1.0, 1.0).applied);
    bf16.add_(1e-4);
  }
  EXPECT_NEAR(weight[0].item<double>(), 1.1, 2e-5);
  EXPECT_EQ(weight.detach().to(at::kBFloat16)[0].item<double>(), 1.1015625);
  EXPECT_EQ(bf16[0].item<double>(), 1.0);
  for (const auto& [name, tensor] : optimizer.state()) EXPECT_EQ(tensor.scalar_type(), at::kFloat);
}

// R-TR-3
TEST(Optimizer, OneGlobalNorm) {
  const at::Tensor a = leaf(at::zeros({1}, at::kFloat)), b = leaf(at::zeros({1}, at::kFloat));
  Optimizer optimizer({{"a", a}, {"b", b}}, {}, nn::Compute::kF32);
  a.mutable_grad() = at::full({1}, 6.0, at::kFloat);
  b.mutable_grad() = at::full({1}, 8.0, at::kFloat);
  const UpdateResult result = optimizer.update(2.0, 1.0);
  EXPECT_DOUBLE_EQ(result.grad_norm, 5.0);
  EXPECT_FLOAT_EQ(a.grad()[0].item<float>(), 0.6F);
  EXPECT_FLOAT_EQ(b.grad()[0].item<float>(), 0.8F);
}

TEST(Optimizer, NonFiniteGradientChangesNothing) {
  for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
    const at::Tensor m = leaf(at::randn({4, 3}, at::kFloat)), v = leaf(at::ones({2}, at::kFloat));
    const at::Tensor before = m.detach().clone();
    Optimizer optimizer({{"m", m}, {"v", v}}, {}, nn::Compute::kF32);
    m.mutable_grad() = at::ones({4, 3}, at::kFloat);
    v.mutable_grad() = at::tensor({1.0, bad}, at::kFloat);
    EXPECT_FALSE(optimizer.update(1.0, 1.0).applied);
    EXPECT_TRUE(m.detach().equal(before));
    EXPECT_EQ(optimizer.num_updates(), 0);
    for (const auto& [name, state] : optimizer.state())
      EXPECT_EQ(state.abs().max().item<double>(), 0);
  }
}

/// Two steps of AdamW by hand, in double.
TEST(Optimizer, AdamWEqualsPlain) {
  const at::Tensor w = leaf(at::tensor({0.5, -2.0}, at::kFloat));
  OptimizerOptions options;
  options.kind = OptimizerKind::kAdamW;
  options.lr = 0.01;
  options.weight_decay = 0.1;
  options.clip_norm = 0;
  Optimizer optimizer({{"w", w}}, options, nn::Compute::kF32);
  double x[] = {0.5, -2.0}, m[] = {0, 0}, v[] = {0, 0};
  const double grads[2][2] = {{0.3, -1.0}, {-0.2, 0.7}};
  for (int t = 1; t <= 2; ++t) {
    w.mutable_grad() = at::tensor({grads[t - 1][0], grads[t - 1][1]}, at::kFloat);
    optimizer.update(1.0, 0.5);
    for (int i = 0; i < 2; ++i) {
      const double g = grads[t - 1][i], rate = 0.005;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      x[i] -= rate * 0.1 * x[i];
      x[i] -= rate * (m[i] / (1 - std::pow(0.9, t))) /
              (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8);
      EXPECT_NEAR(w[i].item<double>(), x[i], 1e-6);
    }
  }
}

TEST(Muon, NearlyOrthogonalBothWays) {
  at::manual_seed(1);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{24, 60}, {60, 24}, {32, 32}}) {
    for (const auto compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
      const at::Tensor g = at::randn({rows, columns}, at::kFloat);
      const at::Tensor values = at::linalg_svdvals(orthogonalise(g, kMinimax, compute));
      EXPECT_GT(values.min().item<double>(), 0.3) << rows << "x" << columns;
      EXPECT_LT(values.max().item<double>(), 1.3) << rows << "x" << columns;
    }
  }
}

/// Matrices of condition 1, m and m^3, wide, tall and square, with their norms.
template <typename Check>
void for_matrices(const Check& check) {
  at::manual_seed(2);
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{40, 72}, {150, 70}, {64, 64}, {33, 300}, {2, 3}}) {
    for (const double decay : {0.0, 1.0, 3.0}) {
      SCOPED_TRACE(fmt::format("{} x {}, decay {}", rows, columns, decay));
      const int64_t m = std::min(rows, columns);
      const at::Tensor scale = at::arange(1, m + 1, at::kFloat).pow(-decay).unsqueeze(1) * 3.0e-3;
      at::Tensor g = at::randn({m, std::max(rows, columns)}, at::kFloat) * scale;
      if (rows > columns) g = g.t().contiguous();
      check(g, g.norm().item<double>());
    }
  }
}

TEST(Muon, OnTheGramMatrixInF32EqualsThePlainIteration) {
  for_matrices([](const at::Tensor& g, double norm) {
    for (const int64_t steps : {4, 5}) {
      for (const size_t first : {1, 2, 3, 4}) {
        const auto iterations = quintics(steps).first(first);
        const at::Tensor want = orthogonalise(g, iterations, nn::Compute::kF32);
        const at::Tensor got = orthogonalise_f32(g, norm, iterations);
        const double gap = (got - want).norm().item<double>() / want.norm().item<double>();
        EXPECT_LT(gap, 1e-4) << first << " of " << steps;
      }
    }
  });
  const at::Tensor wide = at::randn({200, 300}, at::kFloat);  // more than one panel
  const at::Tensor want = orthogonalise(wide, kMinimax, nn::Compute::kF32);
  const at::Tensor got = orthogonalise_f32(wide, wide.norm().item<double>(), kMinimax);
  EXPECT_LT((got - want).abs().max().item<double>(), 1e-4);
}

/// On tiles as by plain products: rounding of the matrix fills its weak directions, which the
/// iteration then lifts, so the bound is what plain products of bf16 differ by from those of f32,
/// times four: the Gram matrix is rounded as well.
TEST(Muon, TilesEqualThePlainIteration) {
  if (!nn::tile_products_supported(nn::Compute::kBF16)) GTEST_SKIP() << "no AMX";
  for_matrices([](const at::Tensor& g, double norm) {
    for (const auto iterations : {quintics(5), quintics(5).first(1), quintics(5).first(2)}) {
      const at::Tensor want = orthogonalise(g, iterations, nn::Compute::kF32);
      const at::Tensor got = orthogonalise_tiles(g, norm, iterations);
      const double gap = (got - want).norm().item<double>() / want.norm().item<double>();
      const at::Tensor plain = orthogonalise(g, iterations, nn::Compute::kBF16);
      const double plain_gap = (plain - want).norm().item<double>() / want.norm().item<double>();
      EXPECT_LT(gap, 4 * plain_gap + 0.01) << iterations.size() << " iterations";
      if (iterations.size() == 5) {
        EXPECT_LT(at::linalg_svdvals(got).max().item<double>(), 1.3);
      }
    }
  });
}

/// The first minimax polynomial is steep where the strongest direction lies (slope 21 at 1), so
/// rounding moves single values inside the band; the directions stay.
TEST(Muon, MinimaxOnTilesKeepsBandAndDirections) {
  if (!nn::tile_products_supported(nn::Compute::kBF16)) GTEST_SKIP() << "no AMX";
  for_matrices([](const at::Tensor& g, double norm) {
    const at::Tensor want = orthogonalise(g, kMinimax, nn::Compute::kF32);
    const at::Tensor got = orthogonalise_tiles(g, norm, kMinimax);
    const double cosine = ((got * want).sum() / (got.norm() * want.norm())).item<double>();
    EXPECT_GT(cosine, 0.98);
    EXPECT_LT(at::linalg_svdvals(got).max().item<double>(), 1.35);
  });
}

// TR-09: the choice follows shape; a [1, N] weight is no matrix.
TEST(Muon, ChosenByShape) {
  const at::Tensor matrix = leaf(at::ones({4, 3}, at::kFloat));
  const at::Tensor row = leaf(at::ones({1, 3}, at::kFloat)),
                   vector = leaf(at::ones({3}, at::kFloat));
  Optimizer optimizer({{"norm.weight", matrix}, {"q_proj.weight", row}, {"x", vector}}, {},
                      nn::Compute::kF32);
  EXPECT_EQ(optimizer.element_counts(), (std::pair<int64_t, int64_t>{12, 6}));
  const auto state = optimizer.state();
  EXPECT_TRUE(state.contains("momentum.norm.weight"));
  EXPECT_TRUE(state.contains("exp_avg_sq.q_proj.weight"));
  optimizer.update(1.0, 1.0);  // no gradients: gradient 0, nothing moves
  EXPECT_TRUE(matrix.detach().equal(at::ones({4, 3}, at::kFloat)));
}

TEST(Optimizer, StateIsChecked) {
  const at::Tensor w = leaf(at::ones({4, 3}, at::kFloat));
  Optimizer optimizer({{"w", w}}, {}, nn::Compute::kF32);
  EXPECT_THROW(optimizer.load_state({}, 1), Error);
  EXPECT_THROW(optimizer.load_state({{"momentum.w", at::ones({3, 4})}}, 1), Error);
  EXPECT_THROW(optimizer.load_state({{"momentum.w", at::ones({4, 3})}, {"x", at::ones({1})}}, 1),
               Error);
  optimizer.load_state({{"momentum.w", at::ones({4, 3})}}, 7);
  EXPECT_EQ(optimizer.num_updates(), 7);
}

}  // namespace
}  // namespace dflash::train
