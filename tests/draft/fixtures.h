// Shared by the tests of draft/: packed rows, rules, reproducible random tensors, comparison.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "block/blocks.h"
#include "draft/drafter.h"
#include "support/record_error.h"

namespace dflash::draft {

inline at::Tensor random_tensor(const std::vector<int64_t>& shape, uint64_t seed,
                                at::ScalarType dtype = at::kFloat) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] = normal01({seed, static_cast<uint64_t>(i)});
  }
  return tensor.to(dtype);
}

/// Two layers, grouped heads, two taps; rules are the given ones.
inline DraftSpec small_spec(const std::vector<block::LayerRule>& layers, int64_t block_size = 4) {
  DraftSpec spec;
  spec.num_layers = static_cast<int64_t>(layers.size());
  spec.hidden_size = 24;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.intermediate_size = 40;
  spec.rms_norm_eps = 1e-5;
  spec.rope.theta = 10000.0;
  spec.taps = {1, 3};
  spec.target_hidden_size = 20;
  spec.target_num_layers = 5;
  spec.vocab_size = 50;
  spec.rule = {.block_size = block_size, .mask_id = 49, .slot_shift = 0, .layers = layers};
  return spec;
}

/// Random weights large enough that every path matters (norm weights off one as well).
inline std::shared_ptr<Drafter> small_drafter(const DraftSpec& spec, nn::Compute compute,
                                              uint64_t seed = 5) {
  std::map<std::string, at::Tensor> weights;
  uint64_t key = seed * 1000;
  for (const auto& [name, shape] : parameter_shapes(spec)) {
    const at::Tensor values = random_tensor(shape, ++key);
    if (shape.size() == 2) {
      weights[name] = values * (1.0 / std::sqrt(static_cast<double>(shape[1])));
    } else {
      weights[name] = name.ends_with("bias") ? values * 0.1 : values * 0.1 + 1.0;
    }
  }
  auto drafter = Drafter::from_weights(spec, compute, weights);
  drafter->pack();
  return drafter;
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
  report::record_error(what, difference[worst].item<double>(), bound);
  EXPECT_LE(difference[worst].item<double>(), bound)
      << what << ": element " << worst << ": got " << a[worst].item<double>() << ", want "
      << b[worst].item<double>();
}

}  // namespace dflash::draft
