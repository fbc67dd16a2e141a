// attend and KvBuffer: against plain f64 softmax, row-invariance, invisible keys.
#include "nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>

#include "nn_test_tools.h"

namespace dflash::nn {
namespace {

/// The slow twin: one query at a time over the stored keys.
at::Tensor plain_attention(const at::Tensor& q_RHE, std::span<const RowKeys> keys) {
  const int64_t rows = q_RHE.size(0), heads = q_RHE.size(1), dim = q_RHE.size(2);
  at::Tensor out = at::zeros({rows, heads, dim}, at::kDouble);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<at::Tensor> k, v;
    for (const KeyRange& range : keys[r].ranges) {
      if (range.begin >= range.end) continue;
      k.push_back(range.buffer->keys(range.begin, range.end));
      v.push_back(range.buffer->values(range.begin, range.end));
    }
    if (k.empty()) continue;
    const at::Tensor keys_TGE = at::cat(k).to(at::kDouble), values = at::cat(v).to(at::kDouble);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv_heads = keys_TGE.size(1), g = h / (heads / kv_heads);
      const double* k_data = keys_TGE.const_data_ptr<double>() + g * dim;
      const double* v_data = values.const_data_ptr<double>() + g * dim;
      const float* query = q_RHE.const_data_ptr<float>() + (r * heads + h) * dim;
      double* to = out.mutable_data_ptr<double>() + (r * heads + h) * dim;
      double total = 0;  // scores of these scenes are small: no peak needs to be taken off in f64
      for (int64_t t = 0; t < keys_TGE.size(0); ++t) {
        double score = 0;
        for (int64_t e = 0; e < dim; ++e) score += query[e] * k_data[t * kv_heads * dim + e];
        const double weight = std::exp(score / std::sqrt(double(dim)));
        for (int64_t e = 0; e < dim; ++e) to[e] += weight * v_data[t * kv_heads * dim + e];
        total += weight;
      }
      for (int64_t e = 0; e < dim; ++e) to[e] /= total;
    }
  }
  return out.reshape({rows, heads * dim});
}

struct Scene {
  Scene(int64_t kv_heads, int64_t dim, Compute storage, int64_t context, int64_t block)
      : past(kv_heads, dim, storage), own(kv_heads, dim, storage) {
    past.write(0, at::randn({context, kv_heads, dim}), at::randn({context, kv_heads, dim}));
    own.write(0, at::randn({block, kv_heads, dim}), at::randn({block, kv_heads, dim}));
  }
  KvBuffer past, own;
};

constexpr Compute kComputes[] = {Compute::kF32, Compute::kBF16};

/// Queries, keys and weights rounded to bf16 move a result by some 2^-8 of the values' size.
double bound_of(Compute storage) {
  return storage == Compute::kF32 ? 4e-6 : 4 * kEps16;
}

TEST(Attention, StoresAndGrows) {
  for (const Compute storage : kComputes) {
    KvBuffer buffer(2, 24, storage);
    const at::Tensor k = at::randn({300, 2, 24}), v = at::randn({300, 2, 24});
    for (int64_t first = 0; first < 300; first += 60) {
      buffer.write(first, k.narrow(0, first, 60), v.narrow(0, first, 60));
    }
    const auto dtype = storage == Compute::kF32 ? at::kFloat : at::kBFloat16;
    EXPECT_TRUE(at::equal(buffer.keys(0, 300), k.to(dtype).to(at::kFloat)));
    EXPECT_TRUE(at::equal(buffer.values(17, 290), v.narrow(0, 17, 273).to(dtype).to(at::kFloat)));
  }
}

TEST(Attention, AgreesWithPlainSoftmax) {
  for_every_isa([&](Isa) {
    for (const Compute storage : kComputes) {
      for (const int64_t dim : {8, 20, 64, 96}) {
        Scene scene(2, dim, storage, 400, 16);
        const at::Tensor q = at::randn({5, 6, dim});
        std::vector<RowKeys> keys(5);
        keys[0].ranges[0] = {&scene.past, 0, 1};
        keys[1].ranges[0] = {&scene.past, 0, 128};
        keys[2] = {{{&scene.past, 3, 300}, {&scene.own, 0, 16}}};
        keys[3] = {{{&scene.past, 127, 129}, {&scene.own, 5, 6}}};
        keys[4].ranges[1] = {&scene.own, 2, 9};
        expect_close(attend(q, keys), plain_attention(q, keys), bound_of(storage));
      }
    }
  });
}

TEST(Attention, RowsDoNotDependOnEachOther) {
  const int64_t counts[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100};
  for_every_isa([&](Isa) {
    for (const Compute storage : kComputes) {
      Scene scene(3, 64, storage, 500, 16);
      const at::Tensor q = at::randn({100, 9, 64});
      std::vector<RowKeys> keys(100);
      for (int64_t r = 0; r < 100; ++r) {
        keys[r] = {{{&scene.past, r % 3 ? 0 : r, 380 + r}, {&scene.own, 0, r % 16}}};
      }
      const at::Tensor all = attend(q, keys);
      for (const int64_t rows : counts) {
        for (const int64_t first : {int64_t{0}, 100 - rows}) {
          const std::span<const RowKeys> some(keys.data() + first, rows);
          ASSERT_TRUE(at::equal(attend(q.narrow(0, first, rows), some), all.narrow(0, first, rows)))
              << compute_name(storage) << " rows " << rows << " from " << first;
        }
      }
    }
  });
}

// R-MASK-6: no visible key gives exactly 0; a NaN at an invisible key changes nothing.
TEST(Attention, InvisibleKeysDoNotMatter) {
  for_every_isa([&](Isa) {
    for (const Compute storage : kComputes) {
      Scene scene(1, 32, storage, 40, 4);
      const at::Tensor q = at::randn({4, 2, 32});
      std::vector<RowKeys> keys(4);
      keys[0].ranges[0] = {&scene.past, 0, 20};
      keys[1].ranges[0] = {&scene.past, 0, 24};
      keys[2].ranges[0] = {&scene.past, 30, 40};
      const at::Tensor before = attend(q, keys);
      EXPECT_TRUE(at::equal(before[3], at::zeros({64})));
      const at::Tensor nan = at::full({1, 1, 32}, std::numeric_limits<float>::quiet_NaN());
      scene.past.write(26, nan, nan);
      EXPECT_TRUE(at::equal(attend(q, keys), before));
      keys[3].ranges[0] = {&scene.past, 20, 30};
      EXPECT_TRUE(at::equal(attend(q, keys).narrow(0, 0, 3), before.narrow(0, 0, 3)));
    }
  });
}

// R-MASK-7: scores [0, 0], visible [yes, no] -> weights [1, 0].
TEST(Attention, MaskRemovesAKeyInsteadOfLoweringItsScore) {
  for (const Compute storage : kComputes) {
    KvBuffer buffer(1, 16, storage);
    at::Tensor v = at::zeros({2, 1, 16});
    v[0].fill_(1), v[1].fill_(3);
    buffer.write(0, at::zeros({2, 1, 16}), v);
    const RowKeys keys[] = {{{{&buffer, 0, 1}, {}}}, {{{&buffer, 0, 2}, {}}}};
    const at::Tensor out = attend(at::ones({2, 1, 16}), keys);
    EXPECT_EQ(out[0][0].item<float>(), 1.0F);
    EXPECT_EQ(out[1][0].item<float>(), 2.0F);
  }
}

}  // namespace
}  // namespace dflash::nn
