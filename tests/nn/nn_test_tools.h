// Comparison with a stated bound, and every instruction set in turn.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <functional>

#include "nn/compute.h"

namespace dflash::nn {

constexpr double kEps32 = 1.1920929e-7, kEps16 = 0.00390625;  // f32, bf16

/// |got - expected| <= bound everywhere; prints the worst element, both values and the bound.
inline void expect_close(const at::Tensor& got, const at::Tensor& expected, double bound) {
  ASSERT_EQ(got.sizes(), expected.sizes());
  const at::Tensor a = got.detach().to(at::kDouble).contiguous();
  const at::Tensor b = expected.detach().to(at::kDouble).contiguous();
  int64_t worst = 0;
  double distance = -1;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double d = std::abs(a.const_data_ptr<double>()[i] - b.const_data_ptr<double>()[i]);
    if (!(d <= distance)) worst = i, distance = d;
    if (!(d == d)) break;
  }
  EXPECT_TRUE(a.numel() == 0 || distance <= bound)
      << "element " << worst << ": got " << a.const_data_ptr<double>()[worst] << ", expected "
      << b.const_data_ptr<double>()[worst] << ", bound " << bound;
}

/// Runs `check` under every instruction set that this CPU has.
inline void for_every_isa(const std::function<void(Isa)>& check) {
  const Isa before = cpu_isa();
  for (int isa = 0; isa <= static_cast<int>(hardware_isa()); ++isa) {
    SCOPED_TRACE(isa_name(static_cast<Isa>(isa)));
    set_isa(static_cast<Isa>(isa));
    check(static_cast<Isa>(isa));
  }
  set_isa(before);
}

}  // namespace dflash::nn
