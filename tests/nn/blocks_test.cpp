// Weights that stay in the blocks of their file: the same bits as weights widened when loaded.
#include "nn/blocks.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "nn/head.h"
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

/// The twin: the same values, in bf16 rounded to it.
Linear widened(const BlockWeight& blocks, const at::Tensor& bias, Compute compute) {
  const at::Tensor values = blocks.widen();
  Linear linear(compute == Compute::kBF16 ? values.to(at::kBFloat16) : values, bias, compute);
  linear.pack();
  return linear;
}

/// With every instruction set, in f32 and where its kernels keep blocks in bf16.
void for_every_kernel(const std::function<void(Compute)>& check) {
  const c10::NoGradGuard no_grad;
  for_every_isa([&](Isa) {
    for (const Compute compute : {Compute::kF32, Compute::kBF16}) {
      if (!PackedWeight::keeps_blocks(compute)) continue;
      SCOPED_TRACE(compute_name(compute));
      check(compute);
    }
  });
}

void expect_same_products(const Kind& kind, int64_t out, int64_t in, Compute compute) {
  const int64_t counts[] = {1, 2, 3, 4, 7, 8, 9, 11, 15, 16, 17, 31, 32, 33, 48, 64, 65, 700};
  const BlockWeight blocks = random_blocks(kind, out, in);
  const at::Tensor bias = at::randn({out}), x = at::randn({700, in});
  const Linear kept(blocks, bias, compute), twin = widened(blocks, bias, compute);
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

TEST(Blocks, GiveTheBitsOfWidenedWeights) {
  for_every_kernel([&](Compute compute) {
    for (const Kind& kind : kKinds) {
      for (const auto& [out, in] :
           {std::pair<int64_t, int64_t>{16, 32}, {1, 64}, {33, 96}, {81, 576}, {120, 1536}}) {
        expect_same_products(kind, out, in, compute);
      }
    }
  });
}

TEST(Blocks, ChooseTheSameIds) {
  for_every_kernel([&](Compute compute) {
    const BlockWeight blocks = random_blocks({8, false, true}, 4099, 64);
    const Linear kept(blocks, {}, compute), twin = widened(blocks, {}, compute);
    const at::Tensor x = at::randn({40, 64});
    for (const int64_t columns : {1, 17, 4000, 4099}) {
      EXPECT_TRUE(at::equal(kept.argmax(x, columns), twin.argmax(x, columns))) << columns;
    }
  });
}

TEST(Blocks, GiveTheSameSwiglu) {
  for_every_kernel([&](Compute compute) {
    const BlockWeight blocks = random_blocks({4, true, true}, 384, 96);
    const Linear kept(blocks, {}, compute), twin = widened(blocks, {}, compute);
    for (const int64_t rows : {1, 16, 40}) {
      const at::Tensor x = at::randn({rows, 96});
      EXPECT_TRUE(at::equal(kept.swiglu(x), twin.swiglu(x))) << rows;
    }
  });
}

/// The head of some ids, from blocks and from plain weights: columns of the whole head's logits.
TEST(Blocks, AHeadOfSomeIdsHasTheWholeHeadsBits) {
  for_every_kernel([&](Compute compute) {
    const BlockWeight blocks = random_blocks({8, false, true}, 200, 64);
    Head head;
    head.num_ids = 200;
    head.linear = Linear(blocks.widen(), {}, compute);
    head.linear.pack(blocks);
    const std::vector<int64_t> ids = {3, 199, 0, 64, 65, 17};
    const at::Tensor x = at::randn({20, 64}), id_V = at::tensor(ids, at::kLong);
    const at::Tensor want = head.logits(x).index_select(1, id_V);
    for (const auto& kept : {std::optional(blocks), std::optional<BlockWeight>()}) {
      const Head some = head_of(head, ids, kept);
      EXPECT_TRUE(at::equal(some.logits(x), want)) << kept.has_value();
      EXPECT_TRUE(at::equal(some.argmax(x), id_V.index_select(0, want.argmax(1))));
    }
  });
}

TEST(Blocks, AreReadFromStridedRows) {
  for_every_kernel([&](Compute compute) {
    const BlockWeight blocks = random_blocks({4, true, true}, 48, 64);
    const Linear kept(blocks, {}, compute), twin = widened(blocks, {}, compute);
    const at::Tensor wide = at::randn({20, 100}), x = wide.narrow(1, 7, 64);
    EXPECT_TRUE(at::equal(kept.forward(x), twin.forward(x)));
  });
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
