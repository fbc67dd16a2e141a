// A random target of six blocks, a drafter of random weights for it, and training under a deviating
// convention, which only tests can do.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "decode/proposers.h"
#include "doctor/convention.h"
#include "doctor/deviations.h"
#include "doctor/evidence.h"
#include "draft/fixtures.h"
#include "target/random.h"
#include "train/trainer.h"

namespace dflash::doctor {

inline std::shared_ptr<const target::Target> small_target(uint64_t seed = 7) {
  target::TransformerConfig config = target::tiny_llama_config();
  config.num_layers = 6;
  return target::make_random_llama(config, seed);
}

inline draft::DraftSpec spec_for(const target::Target& target,
                                 const std::vector<block::LayerRule>& layers) {
  draft::DraftSpec spec = draft::small_spec(layers);
  spec.hidden_size = spec.target_hidden_size = target.config().hidden_size;
  spec.target_num_layers = target.config().num_layers;
  spec.taps = {0, 2, 4};
  spec.vocab_size = target.config().vocab_size;
  spec.rule.mask_id = 90;
  return spec;
}

inline std::vector<std::vector<int64_t>> small_prompts(int64_t count, int64_t length = 6) {
  std::vector<std::vector<int64_t>> prompts;
  for (int64_t p = 0; p < count; ++p) {
    std::vector<int64_t> ids;
    for (int64_t t = 0; t < length; ++t) {
      ids.push_back(static_cast<int64_t>(
          uniform_below(88, {3, static_cast<uint64_t>(p), static_cast<uint64_t>(t)})));
    }
    prompts.push_back(ids);
  }
  return prompts;
}

/// Features as a convention feeds them.
class DeviantSource final : public train::FeatureSource {
 public:
  DeviantSource(const Convention& convention, const data::Dataset& dataset,
                std::shared_ptr<const target::Target> target)
      : convention_(convention),
        layers_(layers_of({convention})),
        target_(target),
        inner_(train::live_source(dataset, target, layers_, /*with_last=*/false)) {}

  train::FeatureRow row(const std::vector<data::PackedPlan::Piece>& pieces) override {
    train::FeatureRow row = inner_->row(pieces);
    row.taps_TF = features_of(convention_, *target_, layers_, row.taps_TF);
    return row;
  }
  int64_t feature_size() const override {
    return target_->config().hidden_size * static_cast<int64_t>(convention_.taps.size());
  }
  bool has_last() const override { return false; }

 private:
  Convention convention_;
  std::vector<int64_t> layers_;
  std::shared_ptr<const target::Target> target_;
  std::unique_ptr<train::FeatureSource> inner_;
};

/// Trains `drafter`'s weights for some steps under a convention and hands them back under the
/// declared one: what a program with one joint off would publish.
inline std::shared_ptr<draft::Drafter> train_under(const Convention& convention,
                                                   const draft::Drafter& start,
                                                   const data::Dataset& dataset,
                                                   std::shared_ptr<const target::Target> target,
                                                   train::TrainOptions options) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& [name, value] : start.parameters()) weights[name] = value.detach().clone();
  auto student = draft::Drafter::from_weights(convention.spec, start.compute(), weights);
  student->set_requires_grad(true);
  DeviantSource source(convention, dataset, target);
  train::Trainer trainer({.dataset = dataset,
                          .source = source,
                          .drafter = student,
                          .table = target->table(),
                          .head = decode::draft_head(*target, convention.spec)},
                         options);
  for (int64_t step = 0; step < trainer.total_steps(); ++step) trainer.step();
  student->set_requires_grad(false);
  std::map<std::string, at::Tensor> trained;
  for (const auto& [name, value] : student->parameters()) trained[name] = value.detach().clone();
  auto published = draft::Drafter::from_weights(start.spec(), start.compute(), trained);
  published->pack();
  return published;
}

}  // namespace dflash::doctor
