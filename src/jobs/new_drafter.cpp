#include "jobs/new_drafter.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/vocab.h"
#include "jobs/drafter_sizes.h"

namespace dflash::jobs {
namespace {

block::LayerRule layer_rule(const NewDrafterOptions& options) {
  block::LayerRule rule;
  rule.window = options.window;
  rule.bound = options.window_bound == "anchor" ? block::Bound::kAnchor : block::Bound::kQuery;
  rule.in_block =
      options.in_block == "causal" ? block::InBlock::kCausal : block::InBlock::kBidirectional;
  return rule;
}

/// Drafter layer l starts from the target block this many of `depth` before the end.
draft::Drafter::NamedTensors block_weights(const target::Target& target, int64_t layer,
                                           int64_t depth) {
  return target.layer_weights(target.config().num_layers - depth + layer);
}

/// The weight of the target's final norm: what it makes of a row of ones.
at::Tensor final_norm_weight(const target::Target& target) {
  return target.final_norm(at::ones({1, target.config().hidden_size})).squeeze(0);
}

}  // namespace

std::optional<int64_t> unused_token(const Model& model) {
  const int64_t rows = model.target->config().vocab_size, strings = model.tokenizer->size();
  if (strings < rows) return strings;
  return model.tokenizer->token_to_id("<empty_output>");
}

int64_t resolve_mask_id(const Model& model, int64_t given) {
  const int64_t rows = model.target->config().vocab_size;
  const int64_t id = given >= 0 ? given : unused_token(model).value_or(-1);
  if (id < 0) {
    fail(
        "no unused token to use as mask: give --mask-id\n  hint: an id of this vocabulary that "
        "text "
        "never holds, neither an end, begin nor pad id");
  }
  if (id >= rows) fail("mask id {} is outside the embedding's {} rows", id, rows);
  const auto& stops = model.tokenizer->stop_ids();
  if (std::find(stops.begin(), stops.end(), id) != stops.end() || id == model.tokenizer->bos_id() ||
      id == model.tokenizer->pad_id()) {
    fail("mask id {} is an end, begin or pad token of the target\n  hint: choose another --mask-id",
         id);
  }
  return id;
}

draft::DraftSpec sizes_for_target(const target::TargetConfig& config,
                                  const NewDrafterOptions& options) {
  draft::DraftSpec spec;
  spec.num_layers = options.num_layers;
  spec.hidden_size = spec.target_hidden_size = config.hidden_size;
  spec.num_heads = config.num_heads;
  spec.num_kv_heads = config.num_kv_heads;
  spec.head_dim = config.head_dim;
  // A target without a dense MLP gives no width: 3 D, as speculators chooses.
  spec.intermediate_size =
      config.intermediate_size > 0 ? config.intermediate_size : 3 * config.hidden_size;
  spec.rms_norm_eps = config.rms_norm_eps;
  spec.rope.theta = config.rope_theta;
  spec.taps = options.taps.empty() ? target::default_taps(config.num_layers, options.num_taps)
                                   : options.taps;
  spec.target_num_layers = config.num_layers;
  spec.vocab_size = config.vocab_size;
  spec.rule.block_size = options.block_size;
  spec.rule.layers.assign(static_cast<size_t>(options.num_layers), layer_rule(options));
  return spec;
}

draft::DraftSpec new_draft_spec(const Model& model, const data::Dataset& dataset,
                                const NewDrafterOptions& options) {
  const auto& config = model.target->config();
  draft::DraftSpec spec = sizes_for_target(config, options);
  spec.target_fingerprint = model.target->fingerprint();
  spec.tokenizer_fingerprint = model.tokenizer->fingerprint();
  spec.rule.mask_id = resolve_mask_id(model, options.mask_id);
  if (options.draft_vocab > 0 && options.draft_vocab < config.vocab_size) {
    const auto chosen = data::make_draft_vocab(dataset, options.draft_vocab,
                                               model.tokenizer->stop_ids(), config.vocab_size);
    spec.draft_ids = chosen.ids;
    log_info("draft vocabulary: {} ids cover {:.2f} % of the answers' tokens", chosen.ids.size(),
             100.0 * chosen.coverage());
  }
  draft::check_spec(spec);
  return spec;
}

std::shared_ptr<draft::Drafter> new_drafter(const Model& model, const draft::DraftSpec& spec,
                                            const NewDrafterOptions& options) {
  auto drafter = draft::Drafter::create(spec, model.target->compute(), options.seed);
  if (options.from_target_layers) {
    if (spec.num_layers > model.target->config().num_layers) {
      fail("--init target-layers: the target has {} blocks, the drafter wants {}",
           model.target->config().num_layers, spec.num_layers);
    }
    std::vector<draft::Drafter::NamedTensors> weights;
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
      weights.push_back(block_weights(*model.target, layer, spec.num_layers));
    }
    drafter->init_from_target_layers(weights, final_norm_weight(*model.target));
  }
  return drafter;
}

}  // namespace dflash::jobs
