// A small drafter of random weights for a small target: it accepts next to nothing, and what it
// proposes depends on every row of its context. Shared with serve.
#pragma once

#include <memory>
#include <vector>

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

}  // namespace dflash::decode
