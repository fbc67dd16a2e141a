// attend and KvBuffer: against plain f64 softmax, row-invariance, invisible keys.
#include "nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <limits>

#include "base/rng.h"
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

/// Rows of a random tree in depth-first order: parents, -1 for the first row.
std::vector<int64_t> random_tree(int64_t rows, uint64_t key) {
  std::vector<int64_t> parents = {-1}, way = {0};
  for (int64_t row = 1; row < rows; ++row) {
    if (uniform_below(3, {key, static_cast<uint64_t>(row)}) == 0) {  // back to some row of the way
      way.resize(1 + uniform_below(way.size(), {key, static_cast<uint64_t>(row), 1}));
    }
    parents.push_back(way.back());
    way.push_back(row);
  }
  return parents;
}

/// A tree behind `committed` rows of one buffer, and the same rows each at the end of its chain.
struct TreeScene {
  TreeScene(Compute storage, int64_t dim, int64_t committed, int64_t rows, uint64_t key)
      : parents(random_tree(rows, key)),
        k(at::randn({committed + rows, 2, dim})),
        v(at::randn({committed + rows, 2, dim})),
        committed(committed),
        buffer(2, dim, storage),
        storage(storage) {}

  void write() { buffer.write(0, k, v); }
  std::vector<int64_t> way_to(int64_t row) const {
    std::vector<int64_t> way;
    for (; row >= 0; row = parents[row]) way.insert(way.begin(), row);
    return way;
  }
  /// Every row by itself; windows as a target would set them.
  std::vector<RowKeys> keys(int64_t window) {
    std::vector<RowKeys> keys(parents.size());
    for (size_t row = 0; row < parents.size(); ++row) {
      const std::vector<int64_t> way = way_to(static_cast<int64_t>(row));
      const int64_t end = committed + static_cast<int64_t>(way.size());
      keys[row].ranges[0] = {&buffer, window > 0 ? std::max<int64_t>(0, end - window) : 0, end};
      if (way.back() + 1 == static_cast<int64_t>(way.size())) continue;  // all in place
      Branch& branch = branches.emplace_back();
      branch.first = committed;
      for (const int64_t at : way) branch.rows.push_back(committed + at);
      keys[row].branch = &branch;
    }
    return keys;
  }
  /// What the row gives in a buffer that holds its own chain only.
  at::Tensor alone(const at::Tensor& q_RHE, int64_t row, KeyRange range) const {
    KvBuffer chain(2, k.size(2), storage);
    if (committed > 0) chain.write(0, k.narrow(0, 0, committed), v.narrow(0, 0, committed));
    int64_t to = committed;
    for (const int64_t at : way_to(row)) {
      chain.write(to++, k.narrow(0, committed + at, 1), v.narrow(0, committed + at, 1));
    }
    const RowKeys keys = {{{&chain, range.begin, range.end}, {}}};
    return attend(q_RHE.narrow(0, row, 1), {&keys, 1});
  }

  std::vector<int64_t> parents;
  at::Tensor k, v;
  int64_t committed;
  KvBuffer buffer;
  Compute storage;
  std::deque<Branch> branches;
};

void expect_same_bits(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const size_t bytes = a.numel() * sizeof(float);
  EXPECT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), bytes), 0) << what;
}

void expect_rows_of_trees_as_chains(Compute storage, int64_t dim, int64_t committed, int64_t rows,
                                    int64_t window, double bad) {
  const uint64_t key = mix({static_cast<uint64_t>(committed), static_cast<uint64_t>(rows)});
  TreeScene scene(storage, dim, committed, rows, key);
  if (bad != 0) {  // in some rows of the tree and, a little later, of the committed ones
    scene.v[committed + rows / 2].fill_(bad);
    scene.k[committed + rows / 3].fill_(bad);
    if (committed > 3) scene.v[committed - 3].fill_(bad);
  }
  scene.write();
  const at::Tensor q = at::randn({rows, 6, dim});
  const std::vector<RowKeys> keys = scene.keys(window);
  const at::Tensor all = attend(q, keys);
  for (int64_t row = 0; row < rows; ++row) {
    expect_same_bits(all.narrow(0, row, 1), scene.alone(q, row, keys[row].ranges[0]),
                     fmt::format("{} dim {} committed {} row {} of {} window {} value {}",
                                 compute_name(storage), dim, committed, row, rows, window, bad));
  }
}

// A row of a tree has the bits of the chain that leads to it: on every instruction set, at the
// edges of chunks, tiles and pairs of keys, behind windows.
TEST(Attention, RowsOfATreeEqualTheirChains) {
  for_every_isa([&](Isa) {
    for (const Compute storage : kComputes) {
      for (const int64_t committed : {0, 1, 15, 31, 32, 33, 100, 120, 126, 127, 128, 250, 259}) {
        for (const int64_t rows : {2, 16, 21}) {
          expect_rows_of_trees_as_chains(storage, 64, committed, rows, 0, 0);
        }
      }
      expect_rows_of_trees_as_chains(storage, 20, 125, 16, 0, 0);
      expect_rows_of_trees_as_chains(storage, 96, 300, 150, 0, 0);
      expect_rows_of_trees_as_chains(storage, 64, 125, 16, 5, 0);
      expect_rows_of_trees_as_chains(storage, 64, 260, 16, 130, 0);
    }
  });
}

TEST(Attention, RowsOfATreeWithNonFiniteNeighbours) {
  const double infinity = std::numeric_limits<double>::infinity();
  for_every_isa([&](Isa) {
    for (const Compute storage : kComputes) {
      for (const int64_t committed : {0, 30, 122, 200}) {
        for (const double bad : {infinity, -infinity}) {
          expect_rows_of_trees_as_chains(storage, 32, committed, 16, 0, bad);
          expect_rows_of_trees_as_chains(storage, 32, committed, 16, 6, bad);
        }
      }
    }
  });
}

// Neighbours of another sequence in the same call change nothing.
TEST(Attention, TreesAndChainsShareACall) {
  for (const Compute storage : kComputes) {
    TreeScene one(storage, 64, 121, 12, 3), two(storage, 64, 40, 9, 4);
    one.write(), two.write();
    const at::Tensor q = at::randn({21, 6, 64});
    std::vector<RowKeys> keys = one.keys(0);
    for (const RowKeys& row : two.keys(0)) keys.push_back(row);
    const at::Tensor all = attend(q, keys);
    for (int64_t row = 0; row < 21; ++row) {
      const bool first = row < 12;
      const at::Tensor own = first ? one.alone(q, row, keys[row].ranges[0])
                                   : two.alone(q.narrow(0, 12, 9), row - 12, keys[row].ranges[0]);
      expect_same_bits(all.narrow(0, row, 1), own, fmt::format("row {}", row));
    }
  }
}

TEST(Attention, MovedRowsAreTheSameBits) {
  for (const Compute storage : kComputes) {
    KvBuffer moved(2, 24, storage), written(2, 24, storage);
    const at::Tensor k = at::randn({40, 2, 24}), v = at::randn({40, 2, 24});
    moved.write(0, k, v), written.write(0, k, v);
    moved.move(39, 30), moved.move(5, 5);
    written.write(30, k.narrow(0, 39, 1), v.narrow(0, 39, 1));
    EXPECT_TRUE(at::equal(moved.keys(0, 40), written.keys(0, 40)));
    EXPECT_TRUE(at::equal(moved.values(0, 40), written.values(0, 40)));
    EXPECT_THROW(moved.move(0, moved.capacity()), std::logic_error);
  }
}

}  // namespace
}  // namespace dflash::nn
