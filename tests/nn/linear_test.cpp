// Linear and its packed product: against plain f64 sums, row-invariance bit for bit under every
// instruction set that this CPU has, gradients.
#include "nn/linear.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/round.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/compute.h"
#include "nn/head.h"
#include "nn/norm.h"
#include "nn_test_tools.h"

namespace dflash::nn {
namespace {

/// The slow twin: f64 sums over values rounded as the compute type rounds them.
at::Tensor plain_product(const at::Tensor& x_RI, const at::Tensor& weight_OI, Compute compute) {
  const auto rounded = [&](const at::Tensor& t) {
    return (compute == Compute::kBF16 ? t.to(at::kBFloat16) : t).to(at::kDouble).contiguous();
  };
  const at::Tensor x = rounded(x_RI), w = rounded(weight_OI);
  const int64_t rows = x.size(0), out = w.size(0), in = x.size(1);
  at::Tensor y = at::zeros({rows, out}, at::kDouble);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < in; ++i) {
        sum += x.const_data_ptr<double>()[r * in + i] * w.const_data_ptr<double>()[o * in + i];
      }
      y.mutable_data_ptr<double>()[r * out + o] = sum;
    }
  }
  return y;
}

struct Case {
  int64_t in, out;
};
constexpr Case kCases[] = {{1, 1},   {32, 16},  {31, 15},  {33, 17}, {64, 64},
                           {45, 70}, {96, 128}, {130, 81}, {256, 48}};
constexpr Compute kComputes[] = {Compute::kF32, Compute::kBF16};

TEST(Linear, AgreesWithPlainSums) {
  const c10::NoGradGuard no_grad;
  for_every_isa([&](Isa) {
    for (const Compute compute : kComputes) {
      for (const Case& c : kCases) {
        const at::Tensor weight = at::randn({c.out, c.in}), bias = at::randn({c.out});
        const at::Tensor x = at::randn({35, c.in});
        Linear linear(weight, bias, compute);
        linear.pack();
        const at::Tensor expected = plain_product(x, weight, compute) + bias.to(at::kDouble);
        // One rounding a step of a sum of `in` terms of size 1: 4 eps sqrt(in) sqrt(in).
        expect_close(linear.forward(x), expected, 4 * kEps32 * static_cast<double>(c.in + 4));
      }
    }
  });
}

/// A last row that no bf16 holds makes the twin a plain f32 weight.
TEST(Linear, F32ComputeHasTheSameBitsOverStoredBf16) {
  const c10::NoGradGuard no_grad;
  for_every_isa([&](Isa) {
    for (const Case& c : {Case{33, 17}, Case{64, 64}, Case{96, 130}, Case{576, 200}}) {
      const at::Tensor weight = at::randn({c.out, c.in}).to(at::kBFloat16);
      const at::Tensor odd = at::full({1, c.in}, 0.1);
      Linear kept(weight, {}, Compute::kF32);
      Linear twin(at::cat({weight.to(at::kFloat), odd}), {}, Compute::kF32);
      kept.pack();
      twin.pack();
      for (const int64_t rows : {1, 2, 5, 7, 16, 100}) {
        const at::Tensor x = at::randn({rows, c.in});
        ASSERT_TRUE(at::equal(kept.forward(x), twin.forward(x).narrow(1, 0, c.out)))
            << c.in << ", rows " << rows;
      }
    }
  });
}

TEST(Linear, SwigluIsThatOfItsProducts) {
  const c10::NoGradGuard no_grad;
  for_every_isa([&](Isa) {
    for (const Compute compute : kComputes) {
      for (const Case& c : {Case{96, 128}, Case{64, 384}, Case{33, 34}}) {
        Linear linear(at::randn({c.out, c.in}), at::randn({c.out}), compute);
        linear.pack();
        for (const int64_t rows : {1, 5, 16, 33, 700}) {
          const at::Tensor x = at::randn({rows, c.in});
          ASSERT_TRUE(at::equal(linear.swiglu(x), swiglu(linear.forward(x))))
              << compute_name(compute) << ", " << c.out << " columns, " << rows << " rows";
        }
      }
    }
  });
}

TEST(Linear, RowsDoNotDependOnTheirNumber) {
  const c10::NoGradGuard no_grad;
  const int64_t counts[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 300};
  for_every_isa([&](Isa) {
    for (const Compute compute : kComputes) {
      for (const Case& c : {Case{130, 81}, Case{576, 200}}) {
        Linear linear(at::randn({c.out, c.in}), at::randn({c.out}), compute);
        linear.pack();
        const at::Tensor x = at::randn({300, c.in}), y = linear.forward(x);
        for (const int64_t rows : counts) {
          const at::Tensor some = linear.forward(x.narrow(0, 300 - rows, rows));
          ASSERT_TRUE(at::equal(some, y.narrow(0, 300 - rows, rows)))
              << compute_name(compute) << " rows " << rows;
        }
      }
    }
  });
}

TEST(Linear, RowsBeyondOneCacheBlockAreTheSame) {
  const c10::NoGradGuard no_grad;
  for (const Compute compute : kComputes) {
    Linear linear(at::randn({40, 4100}), {}, compute);
    linear.pack();
    const at::Tensor x = at::randn({400, 4100}), y = linear.forward(x);
    for (const int64_t r : {0, 63, 64, 127, 128, 255, 256, 399}) {
      ASSERT_TRUE(at::equal(linear.forward(x.narrow(0, r, 1)), y.narrow(0, r, 1))) << r;
    }
  }
}

TEST(Linear, ReadsSlicesAndAddsToResiduals) {
  const c10::NoGradGuard no_grad;
  for_every_isa([&](Isa) {
    for (const Compute compute : kComputes) {
      Linear linear(at::randn({50, 40}), {}, compute);
      linear.pack();
      const at::Tensor wide = at::randn({19, 100}), slice = wide.narrow(1, 13, 40);
      const at::Tensor y = linear.forward(slice.contiguous());
      EXPECT_TRUE(at::equal(linear.forward(slice), y));
      const at::Tensor before = at::randn({19, 50});
      at::Tensor residual = before.clone();
      linear.add_to(slice, residual);
      EXPECT_TRUE(at::equal(residual, before + y));
    }
  });
}

TEST(Linear, ArgmaxIsThatOfTheLogits) {
  const c10::NoGradGuard no_grad;
  for_every_isa([&](Isa) {
    for (const Compute compute : kComputes) {
      for (const int64_t rows : {1, 16, 40}) {
        Head head{Linear(at::randn({333, 48}), {}, compute), {}, 301};
        head.linear.pack();
        const at::Tensor x = at::randn({rows, 48});
        EXPECT_TRUE(at::equal(head.argmax(x), argmax_rows(head.logits(x))));
      }
    }
  });
}

// R-DEC-7: logits 3, 5, 5, 1 -> index 1, wherever the tie falls among vectors and threads.
TEST(Linear, ArgmaxKeepsTheLowestOfEqualLogits) {
  const c10::NoGradGuard no_grad;
  EXPECT_EQ(argmax_rows(at::tensor({3.F, 5.F, 5.F, 1.F}).view({1, 4})).item<int64_t>(), 1);
  for_every_isa([&](Isa) {
    for (const int64_t first : {0, 1, 15, 16, 63, 64, 200}) {
      for (const int64_t second : {first + 1, int64_t{255}, int64_t{320}}) {
        at::Tensor weight = at::zeros({321, 1});
        weight[first] = 5, weight[second] = 5;
        Head head{Linear(weight, {}, Compute::kF32), {}, 321};
        head.linear.pack();
        const at::Tensor x = at::ones({3, 1});
        EXPECT_EQ(head.argmax(x)[2].item<int64_t>(), first);
        EXPECT_EQ(argmax_rows(head.logits(x))[0].item<int64_t>(), first);
      }
    }
  });
}

/// `got` [m, n] is a b up to the rounding of its operands and of itself, element by element: 2^-9
/// of its size a bf16 number, so 2^-8 (1 + 2^-9) of the sum of |a||b| for the two factors, 2^-9 for
/// the result.
void expect_product(const at::Tensor& got, const at::Tensor& a, const at::Tensor& b,
                    Compute compute) {
  const double unit = compute == Compute::kBF16 ? kEps16 : a.size(1) * kEps32;
  const at::Tensor exact = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
  const at::Tensor sizes = at::matmul(a.abs().to(at::kDouble), b.abs().to(at::kDouble));
  const at::Tensor beyond = (got.to(at::kDouble) - exact).abs() - 1.6 * unit * sizes;
  EXPECT_LE(beyond.max().item<double>(), 0) << exact << got;
}

TEST(Linear, GradientsAreThoseOfPlainProducts) {
  for (const Compute compute : kComputes) {
    const at::Tensor weight = at::randn({30, 20}).requires_grad_();
    const at::Tensor x = at::randn({2, 9, 20}).requires_grad_(), dy = at::randn({2, 9, 30});
    const Linear linear(weight, {}, compute);
    linear.forward(x).backward(dy);
    const at::Tensor rows = x.reshape({18, 20}), upstream = dy.reshape({18, 30});
    expect_product(x.grad().reshape({18, 20}), upstream, weight, compute);
    expect_product(weight.grad(), upstream.t(), rows, compute);
  }
}

TEST(Linear, FrozenWeightGetsNoGradient) {
  const at::Tensor weight = at::randn({30, 20});
  const at::Tensor x = at::randn({5, 20}).requires_grad_();
  Linear(weight, {}, Compute::kBF16).forward(x).sum().backward();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_TRUE(x.grad().defined());
}

TEST(Linear, StalePackIsNoticed) {
  const c10::NoGradGuard no_grad;
  Linear linear(at::randn({4, 4}), {}, Compute::kF32);
  EXPECT_THROW(linear.forward(at::ones({1, 4})), std::exception);
  linear.pack();
  linear.weight.add_(1);
  EXPECT_THROW(linear.forward(at::ones({1, 4})), std::exception);
  linear.pack();
  linear.drop_unpacked();
  EXPECT_EQ(linear.forward(at::ones({1, 4})).numel(), 4);
}

}  // namespace
}  // namespace dflash::nn
