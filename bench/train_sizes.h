// Sizes of the drafter that train_bench trains, and the operations of its step counted from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draft/spec.h"

namespace dflash {

/// SmolLM2-135M's sizes; everything else is a setting.
struct StepSizes {
  int64_t layers = 2, block = 8, tokens = 512, anchors = 64;
  int64_t labels = 0;         // rows of the head
  int64_t trained_slots = 0;  // rows that meet the head
  static constexpr int64_t kVocab = 49152, kWidth = 576, kTaps = 5, kHeads = 9, kKvHeads = 3,
                           kHeadDim = 64, kInner = 1536;

  draft::DraftSpec spec() const {
    draft::DraftSpec spec;
    spec.num_layers = layers;
    spec.hidden_size = spec.target_hidden_size = kWidth;
    spec.num_heads = kHeads;
    spec.num_kv_heads = kKvHeads;
    spec.head_dim = kHeadDim;
    spec.intermediate_size = kInner;
    spec.rms_norm_eps = 1e-5;
    spec.rope.theta = 100000.0;
    spec.taps = {1, 8, 14, 20, 27};
    spec.target_num_layers = 30;
    spec.vocab_size = kVocab;
    spec.rule = {.block_size = block, .mask_id = 16, .slot_shift = 0, .layers = {}};
    spec.rule.layers.resize(static_cast<size_t>(layers));
    return spec;
  }
};

/// `count` products [m, k] x [k, n] of a step.
struct StepProduct {
  std::string name;
  int64_t m = 0, n = 0, k = 0, count = 1;
  double operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(count);
  }
};

/// Forward, gradient of the input and gradient of the weight of every product. The taps want no
/// gradient, and the frozen head none of its weight.
inline std::vector<StepProduct> step_products(const StepSizes& s) {
  using S = StepSizes;
  const int64_t rows = s.anchors * s.block, kv = 2 * S::kKvHeads * S::kHeadDim,
                q = S::kHeads * S::kHeadDim;
  std::vector<StepProduct> out;
  struct Weight {
    std::string name;
    int64_t out, in, rows, count;
    bool input_gradient = true, weight_gradient = true;
  };
  const std::vector<Weight> weights = {
      {"fc", S::kWidth, S::kTaps * S::kWidth, s.tokens, 1, false},
      {"context k and v", kv, S::kWidth, s.tokens, s.layers},
      {"q, k and v", q + kv, S::kWidth, rows, s.layers},
      {"o", S::kWidth, q, rows, s.layers},
      {"gate and up", 2 * S::kInner, S::kWidth, rows, s.layers},
      {"down", S::kWidth, S::kInner, rows, s.layers},
      {"head", s.labels, S::kWidth, s.trained_slots, 1, true, false}};
  for (const Weight& w : weights) {
    out.push_back({w.name, w.rows, w.out, w.in, w.count});
    if (w.input_gradient) out.push_back({w.name + ", dX", w.rows, w.in, w.out, w.count});
    if (w.weight_gradient) out.push_back({w.name + ", dW", w.out, w.in, w.rows, w.count});
  }
  return out;
}

/// Scores and mean of values forward, twice as much backward (recomputed scores do not count), with
/// the mean context of anchors drawn from the whole document.
inline double attention_operations(const StepSizes& s) {
  using S = StepSizes;
  const double keys = static_cast<double>(s.tokens) / 2.0 + static_cast<double>(s.block);
  const double queries = static_cast<double>(s.anchors * s.block * S::kHeads * s.layers);
  return 12.0 * queries * keys * S::kHeadDim;
}

}  // namespace dflash
