// Linear and the packed product: against plain f64 loops, row-invariance, gradients.
#include "nn/linear.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/compute.h"

namespace dflash::nn {
namespace {

TEST(Linear, PackedRowsDoNotDependOnTheirNumber) {
  const c10::NoGradGuard no_grad;
  for (const Compute compute : {Compute::kF32, Compute::kBF16}) {
    Linear linear(at::randn({70, 45}), at::randn({70}), compute);
    linear.pack();
    const at::Tensor x = at::randn({33, 45}), y = linear.forward(x);
    for (int64_t r = 0; r < 33; ++r) {
      EXPECT_TRUE(at::equal(linear.forward(x.narrow(0, r, 1)), y.narrow(0, r, 1)));
    }
  }
}

}  // namespace
}  // namespace dflash::nn
