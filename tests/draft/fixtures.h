// Shared by the tests of draft/: packed rows, rules, reproducible random tensors, comparison.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "block/blocks.h"

namespace dflash::draft {

inline at::Tensor random_tensor(const std::vector<int64_t>& shape, uint64_t seed,
                                at::ScalarType dtype = at::kFloat) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] = normal01({seed, static_cast<uint64_t>(i)});
  }
  return tensor.to(dtype);
}

/// Owns what a block::PackedRow points to: documents of the given lengths, all supervised.
struct TestRow {
  explicit TestRow(const std::vector<int64_t>& lengths, int64_t vocab = 50) {
    for (size_t d = 0; d < lengths.size(); ++d) {
      for (int64_t t = 0; t < lengths[d]; ++t) {
        ids.push_back(static_cast<int64_t>(
            uniform_below(static_cast<uint64_t>(vocab), {77, static_cast<uint64_t>(ids.size())})));
        doc.push_back(static_cast<int64_t>(d));
        pos.push_back(t);
        loss_mask.push_back(1);
      }
    }
  }
  block::PackedRow packed() const { return {ids, loss_mask, doc}; }
  at::Tensor positions() const { return at::tensor(pos, at::kLong); }
  int64_t size() const { return static_cast<int64_t>(ids.size()); }

  std::vector<int64_t> ids, doc, pos;
  std::vector<uint8_t> loss_mask;
};

/// Worst element, both values and the bound on failure.
inline void expect_close(const at::Tensor& got, const at::Tensor& want, double bound,
                         const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  if (got.numel() == 0) return;
  const at::Tensor a = got.detach().to(at::kDouble).reshape(-1);
  const at::Tensor b = want.detach().to(at::kDouble).reshape(-1);
  const at::Tensor difference = a.sub(b).abs();
  ASSERT_TRUE(difference.isfinite().all().item<bool>()) << what << ": not finite";
  const int64_t worst = difference.argmax().item<int64_t>();
  EXPECT_LE(difference[worst].item<double>(), bound)
      << what << ": element " << worst << ": got " << a[worst].item<double>() << ", want "
      << b[worst].item<double>();
}

}  // namespace dflash::draft
