// The delta net's operations against plain f64 ones: the recurrence as MODELS.md 3.5 writes it, and
// its chunked form, which is another algebra for the same thing. Splitting rows changes no bit.
#include "nn/delta.h"

#include <ATen/ops/cumsum.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tril.h>

#include "nn_test_tools.h"

namespace dflash::nn {
namespace {

constexpr DeltaShape kShape = {
    .key_heads = 2, .value_heads = 6, .key_dim = 12, .value_dim = 20, .conv_taps = 4};

DeltaInputs random_inputs(const DeltaShape& shape, int64_t rows) {
  return delta_inputs(shape, at::randn({rows, shape.conv_width()}),
                      at::randn({rows, shape.value_heads}), at::randn({rows, shape.value_heads}),
                      at::exp(at::randn({shape.value_heads}) * 0.5),
                      at::randn({shape.value_heads}));
}

/// One head's rows in f64: q, k, v [T, .], g = log decay and beta [T].
struct Head {
  at::Tensor q, k, v, g, beta;
};
Head head_of(const DeltaInputs& in, int64_t head) {
  const int64_t key = head / (in.v_RHE.size(1) / in.k_RHE.size(1));
  const auto f64 = [](const at::Tensor& t, int64_t at) { return t.select(1, at).to(at::kDouble); };
  return {f64(in.q_RHE, key), f64(in.k_RHE, key), f64(in.v_RHE, head), f64(in.decay_RH, head).log(),
          f64(in.beta_RH, head)};
}

std::pair<at::Tensor, at::Tensor> recurrence(const Head& h, at::Tensor state) {
  std::vector<at::Tensor> out;
  for (int64_t t = 0; t < h.q.size(0); ++t) {
    state = state * h.g[t].exp();
    const at::Tensor delta = (h.v[t] - at::matmul(state.t(), h.k[t])) * h.beta[t];
    state = state + at::einsum("i,j->ij", {h.k[t], delta});
    out.push_back(at::matmul(state.t(), h.q[t]));
  }
  return {at::stack(out), state};
}

std::pair<at::Tensor, at::Tensor> chunked(const Head& h, at::Tensor state) {
  constexpr int64_t kChunk = 64;
  std::vector<at::Tensor> out;
  for (int64_t first = 0; first < h.q.size(0); first += kChunk) {
    const int64_t size = std::min(kChunk, h.q.size(0) - first);
    const auto rows = [&](const at::Tensor& t) { return t.narrow(0, first, size); };
    const at::Tensor q = rows(h.q), k = rows(h.k), beta = rows(h.beta).unsqueeze(1);
    const at::Tensor sum = at::cumsum(rows(h.g), 0), grown = at::exp(sum).unsqueeze(1);
    const at::Tensor gap = at::tril(sum.unsqueeze(1) - sum.unsqueeze(0));
    const at::Tensor decay = at::tril(at::exp(gap));
    const at::Tensor a = at::tril(beta * at::matmul(k, k.t()) * decay, -1);
    const at::Tensor unit = a + at::eye(size, at::kDouble);
    const auto solve = [&](const at::Tensor& right) {
      return at::linalg_solve_triangular(unit, right, /*upper=*/false);
    };
    const at::Tensor fresh = solve(beta * rows(h.v)) - at::matmul(solve(beta * grown * k), state);
    out.push_back(at::matmul(grown * q, state) + at::matmul(at::matmul(q, k.t()) * decay, fresh));
    const at::Tensor left = at::exp(sum[size - 1] - sum).unsqueeze(1);
    state = state * at::exp(sum[size - 1]) + at::matmul((left * k).t(), fresh);
  }
  return {at::cat(out), state};
}

TEST(Delta, RecurrenceAndChunkedFormAgree) {
  for (const int64_t rows : {1, 2, 63, 64, 65, 150}) {
    SCOPED_TRACE(rows);
    const DeltaInputs in = random_inputs(kShape, rows);
    const at::Tensor start = at::randn({kShape.value_heads, kShape.key_dim, kShape.value_dim});
    for_every_isa([&](Isa) {
      const at::Tensor state = start.clone();
      const DeltaPart part = {{0, rows}, start, state};
      const at::Tensor y = delta_rule(in, {&part, 1});
      for (int64_t head = 0; head < kShape.value_heads; ++head) {
        const Head h = head_of(in, head);
        const auto [want, end] = recurrence(h, start[head].to(at::kDouble));
        const auto [twin, twin_end] = chunked(h, start[head].to(at::kDouble));
        // q and k have length 1, states a few units: sums of 12 products a row, which decay.
        expect_close(y.select(1, head), want, 128 * kEps32);
        expect_close(state[head], end, 128 * kEps32);
        expect_close(twin, want, 1e-10);
        expect_close(twin_end, end, 1e-10);
      }
    });
  }
}

TEST(Delta, SplitsAndNeighboursChangeNoBit) {
  for (const int64_t value_dim : {5, 16, 64, 72, 128}) {
    DeltaShape shape = kShape;
    shape.value_dim = value_dim;
    const DeltaInputs in = random_inputs(shape, 21);
    const std::vector<int64_t> size = {shape.value_heads, shape.key_dim, value_dim};
    for_every_isa([&](Isa) {
      const at::Tensor whole = at::zeros(size), other = at::zeros(size), split = at::zeros(size);
      const DeltaPart alone = {{0, 13}, whole, whole};
      const at::Tensor want = delta_rule(in, {&alone, 1});
      // The same rows in three calls; in the second one beside another sequence, out of place.
      const at::Tensor next = at::zeros(size);
      const DeltaPart first = {{0, 1}, split, split}, last = {{9, 13}, next, next};
      const std::vector<DeltaPart> both = {{{1, 9}, split, next}, {{13, 21}, other, other}};
      std::vector<at::Tensor> parts = {delta_rule(in, {&first, 1}).narrow(0, 0, 1)};
      const at::Tensor kept = split.clone();
      parts.push_back(delta_rule(in, both).narrow(0, 1, 8));
      parts.push_back(delta_rule(in, {&last, 1}).narrow(0, 9, 4));
      EXPECT_TRUE(at::equal(at::cat(parts), want.narrow(0, 0, 13)));
      EXPECT_TRUE(at::equal(next, whole));
      EXPECT_TRUE(at::equal(split, kept));  // read only
      const at::Tensor silent = at::zeros(size);
      const DeltaPart again = {{0, 13}, silent, silent};
      advance_delta_states(in, {&again, 1});
      EXPECT_TRUE(at::equal(silent, whole));
    });
  }
}

// R-DEC-4: S <- .25 S + .5 v with S = 1 and v = 2, 4, 6, 8, as a delta rule of one dimension: k of
// length 1, decay d and strength b give S <- d (1 - b) S + b v, so b = .5 and d = .5.
TEST(Delta, ScalarStateByHand) {
  DeltaInputs in;
  in.q_RHE = in.k_RHE = at::ones({4, 1, 1});
  in.v_RHE = at::tensor({2.F, 4.F, 6.F, 8.F}).view({4, 1, 1});
  in.decay_RH = in.beta_RH = at::full({4, 1}, 0.5F);
  const at::Tensor state = at::ones({1, 1, 1});
  const DeltaPart part = {{0, 4}, state, state};
  const at::Tensor y = delta_rule(in, {&part, 1});
  EXPECT_TRUE(at::equal(y.flatten(), at::tensor({1.25F, 2.3125F, 3.578125F, 4.89453125F})));
  EXPECT_EQ(state.item<float>(), 4.89453125F);
}

TEST(Delta, InputsAsTheFormulaSays) {
  const int64_t rows = 5;
  const at::Tensor conv = at::randn({rows, kShape.conv_width()});
  const at::Tensor a = at::randn({rows, 6}) * 20, b = at::randn({rows, 6});
  const at::Tensor rate = at::exp(at::randn({6})), bias = at::randn({6});
  const DeltaInputs in = delta_inputs(kShape, conv, a, b, rate, bias);
  const at::Tensor k = conv.narrow(1, 24, 24).reshape({rows, 2, 12}).to(at::kDouble);
  const at::Tensor length = (k * k).sum(-1, true);
  expect_close(in.k_RHE, k / (length + 1e-6).sqrt(), 8 * kEps32);
  const at::Tensor q = conv.narrow(1, 0, 24).reshape({rows, 2, 12}).to(at::kDouble);
  expect_close(in.q_RHE, q / ((q * q).sum(-1, true) + 1e-6).sqrt() / std::sqrt(12.0), 8 * kEps32);
  EXPECT_TRUE(at::equal(in.v_RHE.flatten(1), conv.narrow(1, 48, 120)));
  expect_close(in.beta_RH, at::sigmoid(b.to(at::kDouble)), 4 * kEps32);
  const at::Tensor want = at::exp(-rate.to(at::kDouble) * at::softplus((a + bias).to(at::kDouble)));
  // The exponent reaches tens: its relative error shows as so many eps.
  expect_close(in.decay_RH, want, 64 * kEps32);
  // Zero rows (a state's first) stay zero.
  const DeltaInputs zero = delta_inputs(kShape, at::zeros_like(conv), a, b, rate, bias);
  EXPECT_TRUE(at::equal(zero.k_RHE, at::zeros_like(zero.k_RHE)));
}

// R-DEC-4: kernel 4 over history 1, 2, 3 and rows 4, 5, 6, 7; taps that add and taps that shift.
TEST(Conv, SeesTheRowsBefore) {
  const at::Tensor before = at::tensor({1.F, 2.F, 3.F}).view({3, 1});
  const at::Tensor x = at::tensor({4.F, 5.F, 6.F, 7.F}).view({4, 1});
  const ConvPart part = {{0, 4}, before};
  const auto run = [&](std::vector<float> taps) {
    return causal_conv_silu(x, at::tensor(taps).view({4, 1}), {&part, 1}).flatten();
  };
  for_every_isa([&](Isa) {
    const at::Tensor sums = at::tensor({10.F, 14.F, 18.F, 22.F});
    expect_close(run({1, 1, 1, 1}), at::silu(sums), 64 * kEps32);
    expect_close(run({1, 0, 0, 0}), at::silu(at::tensor({1.F, 2.F, 3.F, 4.F})), 16 * kEps32);
    expect_close(run({0, 0, 0, 1}), at::silu(x.flatten()), 16 * kEps32);
  });
}

TEST(Conv, SplitsChangeNoBit) {
  const at::Tensor wide = at::randn({11, 60}), x = wide.narrow(1, 7, 37), taps = at::randn({3, 37});
  for_every_isa([&](Isa) {
    const ConvPart alone = {{0, 11}, at::zeros({2, 37})};
    const at::Tensor want = causal_conv_silu(x, taps, {&alone, 1});
    const std::vector<ConvPart> parts = {{{0, 1}, at::zeros({2, 37})},
                                         {{1, 4}, at::cat({at::zeros({1, 37}), x.narrow(0, 0, 1)})},
                                         {{4, 11}, x.narrow(0, 2, 2).contiguous()}};
    EXPECT_TRUE(at::equal(causal_conv_silu(x, taps, parts), want));
  });
}

}  // namespace
}  // namespace dflash::nn
