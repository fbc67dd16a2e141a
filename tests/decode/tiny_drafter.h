// A small drafter of random weights for a small target: it accepts next to nothing, and what it
// proposes depends on every row of its context. Shared with serve. And requests to try it with.
#pragma once

#include <memory>
#include <vector>

#include "base/rng.h"
#include "decode/engine.h"
#include "draft/drafter.h"
#include "target/target.h"

namespace dflash::decode {

inline draft::DraftSpec tiny_spec(const target::Target& target) {
  draft::DraftSpec spec;
  spec.num_layers = 2;
  spec.hidden_size = target.config().hidden_size;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.intermediate_size = 48;
  spec.taps = {0, 1};
  spec.target_hidden_size = target.config().hidden_size;
  spec.target_num_layers = target.config().num_layers;
  spec.rule = {.block_size = 5, .mask_id = 95, .layers = std::vector<block::LayerRule>(2)};
  spec.vocab_size = target.config().vocab_size;
  return spec;
}

inline std::shared_ptr<const draft::Drafter> drafter_of(const draft::DraftSpec& spec,
                                                        nn::Compute compute = nn::Compute::kF32) {
  const auto drafter = draft::Drafter::create(spec, compute, 7);
  drafter->pack();
  return drafter;
}

/// Random prompts of up to 30 ids below 90; budgets first_budget, first_budget + more, ...
inline std::vector<Request> requests_of(int64_t count, double temperature, int64_t first_budget,
                                        int64_t more) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = static_cast<uint64_t>(i);
    Request request{.sampling = {.temperature = temperature, .seed = key},
                    .max_new_tokens = first_budget + more * i};
    for (uint64_t t = 0; t < 1 + uniform_below(30, {4, key}); ++t) {
      request.prompt.push_back(static_cast<int64_t>(uniform_below(90, {6, key, t})));
    }
    requests.push_back(request);
  }
  return requests;
}

}  // namespace dflash::decode
