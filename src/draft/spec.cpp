#include "draft/spec.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"

namespace dflash::draft {
namespace {

// Generous bounds, so that no product of sizes overflows and no file can ask for the machine.
constexpr int64_t kMaxLayers = 256, kMaxTaps = 256, kMaxSize = 1 << 20, kMaxVocab = 1 << 24;

void expect_between(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    fail("drafter: {}: expected {} to {}, got {}", name, low, high, value);
  }
}

void check_taps(const DraftSpec& spec) {
  expect_between("number of taps", static_cast<int64_t>(spec.taps.size()), 1, kMaxTaps);
  const int64_t last = spec.target_num_layers > 0 ? spec.target_num_layers - 1 : kMaxSize;
  for (const int64_t tap : spec.taps) {
    if (tap < -1 || tap > last) {
      fail(
          "drafter: target_layer_ids: expected -1 (embedding) to {}, got {}\n  hint: 0-based, "
          "\"residual after block i\"; other programs count from 1",
          last, tap);
    }
  }
}

void check_windows(const DraftSpec& spec) {
  int64_t window = 0;
  for (const block::LayerRule& layer : spec.rule.layers) {
    if (layer.window == 0) continue;
    if (window > 0 && layer.window != window) {
      fail(
          "drafter: sliding_window: expected one size for all sliding layers, got {} and {}\n  "
          "hint: the drafter format has one",
          window, layer.window);
    }
    window = layer.window;
  }
}

void check_draft_ids(const DraftSpec& spec) {
  std::unordered_set<int64_t> seen;
  for (const int64_t id : spec.draft_ids) {
    if (id < 0 || id >= spec.vocab_size) {
      fail("drafter: draft vocabulary: expected ids 0 to {}, got {}", spec.vocab_size - 1, id);
    }
    if (!seen.insert(id).second) fail("drafter: draft vocabulary: id {} appears twice", id);
  }
}

}  // namespace

void check_spec(const DraftSpec& spec) {
  expect_between("num_hidden_layers", spec.num_layers, 1, kMaxLayers);
  expect_between("hidden_size", spec.hidden_size, 1, kMaxSize);
  expect_between("target's hidden_size", spec.target_hidden_size, 1, kMaxSize);
  expect_between("intermediate_size", spec.intermediate_size, 1, kMaxSize);
  expect_between("num_attention_heads", spec.num_heads, 1, kMaxSize);
  expect_between("num_key_value_heads", spec.num_kv_heads, 1, spec.num_heads);
  expect_between("head_dim", spec.head_dim, 2, 1 << 12);
  expect_between("vocab_size", spec.vocab_size, 1, kMaxVocab);
  expect_between("num_target_layers", spec.target_num_layers, 0, 1 << 12);
  if (spec.num_heads % spec.num_kv_heads != 0) {
    fail("drafter: num_attention_heads: expected a multiple of num_key_value_heads {}, got {}",
         spec.num_kv_heads, spec.num_heads);
  }
  if (spec.head_dim % 2 != 0) {
    fail("drafter: head_dim: expected an even number, got {}", spec.head_dim);
  }
  if (!(spec.rms_norm_eps > 0 && spec.rms_norm_eps < 1)) {
    fail("drafter: rms_norm_eps: expected between 0 and 1, got {}", spec.rms_norm_eps);
  }
  if (!(spec.rope.theta >= 1.0 && spec.rope.theta <= 1e12)) {
    fail("drafter: rope_theta: expected 1 to 1e12, got {}", spec.rope.theta);
  }
  check_taps(spec);
  block::check_rule(spec.rule, spec.vocab_size);
  if (static_cast<int64_t>(spec.rule.layers.size()) != spec.num_layers) {
    fail("drafter: layer rules: expected one for each of {} layers, got {}", spec.num_layers,
         spec.rule.layers.size());
  }
  check_windows(spec);
  check_draft_ids(spec);
}

}  // namespace dflash::draft
