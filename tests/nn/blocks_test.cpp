// Weights that stay in the blocks of their file: the same bits as weights widened when loaded.
#include "nn/blocks.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "nn/linear.h"
#include "nn/packed.h"
#include "nn_test_tools.h"

namespace dflash::nn {
namespace {

struct Kind {
  int64_t bits;
  bool least, half;
};
constexpr Kind kKinds[] = {
    {4, true, true}, {4, true, false}, {8, false, true}, {8, true, true}, {8, true, false}};

BlockWeight random_blocks(const Kind& kind, int64_t out, int64_t in) {
  // As the formats have them: a half, or a half times a whole number of six bits. The products with
  // codes are then exact in f32.
  const auto scales = [&] {
    const at::Tensor values = (at::randn({out, in / kBlockWidth}) * 0.05).to(at::kHalf);
    return kind.half ? values.to(at::kFloat)
                     : values.to(at::kFloat) * at::randint(1, 64, values.sizes()).to(at::kFloat);
  };
  const int64_t low = kind.bits == 4 ? 0 : -128, high = kind.bits == 4 ? 16 : 128;
  return {.bits = kind.bits,
          .codes_OI = at::randint(low, high, {out, in}, at::kChar),
          .scale_OB = scales(),
          .least_OB = kind.least ? scales() : at::Tensor()};
}

/// The twin: the same values, rounded to bf16 when packed.
Linear widened(const BlockWeight& blocks, const at::Tensor& bias) {
  Linear linear(blocks.widen().to(at::kBFloat16), bias, Compute::kBF16);
  linear.pack();
  return linear;
}

class Blocks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PackedWeight::keeps_blocks()) GTEST_SKIP() << "these kernels widen blocks at load";
  }
  c10::NoGradGuard no_grad_;
};

TEST_F(Blocks, GiveTheBitsOfWidenedWeights) {
  const int64_t counts[] = {1, 2, 3, 15, 16, 17, 32, 33, 48, 64, 65, 700};
  for (const Kind& kind : kKinds) {
    for (const auto& [out, in] :
         {std::pair<int64_t, int64_t>{16, 32}, {1, 64}, {33, 96}, {81, 576}, {200, 1536}}) {
      const BlockWeight blocks = random_blocks(kind, out, in);
      const at::Tensor bias = at::randn({out}), x = at::randn({700, in});
      const Linear kept(blocks, bias), twin = widened(blocks, bias);
      for (const int64_t rows : counts) {
        const at::Tensor some = x.narrow(0, 700 - rows, rows);
        ASSERT_TRUE(at::equal(kept.forward(some), twin.forward(some)))
            << kind.bits << " bits, " << out << " x " << in << ", rows " << rows;
        at::Tensor sum = at::randn({rows, out}), twin_sum = sum.clone();
        kept.add_to(some, sum);
        twin.add_to(some, twin_sum);
        ASSERT_TRUE(at::equal(sum, twin_sum)) << "added, rows " << rows;
      }
    }
  }
}

TEST_F(Blocks, ChooseTheSameIds) {
  const BlockWeight blocks = random_blocks({8, false, true}, 4099, 64);
  const Linear kept(blocks, {}), twin = widened(blocks, {});
  const at::Tensor x = at::randn({40, 64});
  for (const int64_t columns : {1, 17, 4000, 4099}) {
    EXPECT_TRUE(at::equal(kept.argmax(x, columns), twin.argmax(x, columns))) << columns;
  }
}

TEST_F(Blocks, GiveTheSameSwiglu) {
  const BlockWeight blocks = random_blocks({4, true, true}, 384, 96);
  const Linear kept(blocks, {}), twin = widened(blocks, {});
  for (const int64_t rows : {1, 16, 40}) {
    const at::Tensor x = at::randn({rows, 96});
    EXPECT_TRUE(at::equal(kept.swiglu(x), twin.swiglu(x))) << rows;
  }
}

TEST_F(Blocks, AreReadFromStridedRows) {
  const BlockWeight blocks = random_blocks({4, true, true}, 48, 64);
  const Linear kept(blocks, {}), twin = widened(blocks, {});
  const at::Tensor wide = at::randn({20, 100}), x = wide.narrow(1, 7, 64);
  EXPECT_TRUE(at::equal(kept.forward(x), twin.forward(x)));
}

TEST(BlockWeights, JoinOnlyTheirOwnKind) {
  const BlockWeight a = random_blocks({4, true, true}, 3, 64);
  const BlockWeight b = random_blocks({4, true, true}, 5, 64);
  const auto both = joined({a, b});
  ASSERT_TRUE(both.has_value());
  EXPECT_TRUE(at::equal(both->widen().narrow(0, 3, 5), b.widen()));
  EXPECT_FALSE(joined({a, random_blocks({8, true, true}, 5, 64)}).has_value());
  EXPECT_FALSE(
      joined({random_blocks({8, false, true}, 5, 64), random_blocks({8, true, true}, 5, 64)})
          .has_value());
}

}  // namespace
}  // namespace dflash::nn
