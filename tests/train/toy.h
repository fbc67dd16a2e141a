// A small world to train in: a dataset in memory, features that hold the answer, a tiny drafter and
// a random frozen target. Everything is keyed, nothing depends on order.
#pragma once

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "data/dataset.h"
#include "draft/drafter.h"
#include "nn/head.h"
#include "nn/norm.h"
#include "train/run.h"
#include "train/trainer.h"

namespace dflash::train::toy {

constexpr int64_t kVocab = 40, kWidth = 16, kTaps = 2, kMask = 39;

inline at::Tensor normal(const std::vector<int64_t>& shape, uint64_t seed) {
  at::Tensor out = at::empty(shape, at::kFloat);
  for (int64_t i = 0; i < out.numel(); ++i) {
    out.data_ptr<float>()[i] = static_cast<float>(normal01({seed, static_cast<uint64_t>(i)}));
  }
  return out;
}

/// Documents of 6 to 20 tokens; the first three of each are the prompt.
inline data::Dataset dataset(int64_t documents = 12) {
  data::Dataset set;
  for (int64_t d = 0; d < documents; ++d) {
    data::Document document;
    const auto length = 6 + static_cast<int64_t>(uniform_below(15, {1, static_cast<uint64_t>(d)}));
    for (int64_t t = 0; t < length; ++t) {
      document.ids.push_back(static_cast<int64_t>(
          uniform_below(kVocab - 1, {2, static_cast<uint64_t>(d), static_cast<uint64_t>(t)})));
      document.loss_mask.push_back(t >= 3 ? 1 : 0);
    }
    set.add(document);
  }
  return set;
}

/// Features of a token depend on its document and position only; argmax is the next token.
class Source : public FeatureSource {
 public:
  explicit Source(const data::Dataset& set) : set_(set) {}

  FeatureRow row(const std::vector<data::PackedPlan::Piece>& pieces) override {
    FeatureRow row;
    std::vector<at::Tensor> taps, last;
    for (const auto& piece : pieces) {
      const auto ids = set_.document_ids(piece.document);
      const auto mask = set_.document_mask(piece.document);
      for (int64_t t = 0; t < piece.length; ++t) {
        row.ids.push_back(ids[t]);
        row.loss_mask.push_back(mask[t]);
        row.doc.push_back(static_cast<int64_t>(row.document.size()));
        row.pos.push_back(t);
        row.argmax.push_back(t + 1 < static_cast<int64_t>(ids.size()) ? ids[t + 1] : 0);
      }
      const auto seed = 100 + static_cast<uint64_t>(piece.document);
      taps.push_back(normal({piece.length, kTaps * kWidth}, seed));
      last.push_back(normal({piece.length, kWidth}, seed + 1000));
      if (bad.contains(piece.document)) taps.back()[piece.length / 2][3] = NAN;
      if (bad_last.contains(piece.document)) last.back()[piece.length / 2][3] = INFINITY;
      row.document.push_back(piece.document);
    }
    row.taps_TF = at::cat(taps);
    row.last_TD = at::cat(last);
    return row;
  }
  int64_t feature_size() const override { return kTaps * kWidth; }
  bool has_last() const override { return true; }

  std::set<int64_t> bad;       // documents with a NaN in a tap
  std::set<int64_t> bad_last;  // or whose residual overflowed after the last tap

 private:
  const data::Dataset& set_;
};

inline draft::DraftSpec spec() {
  draft::DraftSpec s;
  s.num_layers = 2;
  s.hidden_size = kWidth;
  s.num_heads = 2;
  s.num_kv_heads = 1;
  s.head_dim = 8;
  s.intermediate_size = 24;
  s.rms_norm_eps = 1e-5;
  s.rope.theta = 10000.0;
  s.taps = {1, 3};
  s.target_hidden_size = kWidth;
  s.target_num_layers = 5;
  s.vocab_size = kVocab;
  s.rule = {.block_size = 4, .mask_id = kMask, .slot_shift = 0, .layers = {{}, {}}};
  return s;
}

inline std::shared_ptr<draft::Drafter> drafter(nn::Compute compute = nn::Compute::kF32) {
  std::map<std::string, at::Tensor> weights;
  uint64_t seed = 7000;
  for (const auto& [name, shape] : draft::parameter_shapes(spec())) {
    ++seed;
    weights[name] = shape.size() == 2
                        ? normal(shape, seed) / std::sqrt(static_cast<double>(shape[1]))
                        : normal(shape, seed) * 0.1 + 1.0;
  }
  return draft::Drafter::from_weights(spec(), compute, weights);
}

/// Data, source, frozen parts and options of one run.
struct World {
  explicit World(nn::Compute given = nn::Compute::kF32)
      : set(dataset()), source(set), compute(given), model(drafter(given)) {
    table.weight_VD = normal({kVocab, kWidth}, 1);
    head.linear = nn::Linear(normal({kVocab, kWidth}, 2), {}, compute);
    head.num_ids = kVocab;
    norm_D = normal({kWidth}, 3) * 0.1 + 1.0;
    options.row_tokens = 48;
    options.anchors_per_document = 6;
    options.anchors_per_step = 12;
    options.epochs = 4;
    options.optimizer.lr = 3e-3;
    options.seed = 11;
  }
  TrainParts parts() {
    return {set,   source,
            model, table,
            head,  [this](const at::Tensor& last) { return nn::rms_norm(last, norm_D, 1e-5); }};
  }
  std::unique_ptr<Trainer> trainer() { return std::make_unique<Trainer>(parts(), options); }

  data::Dataset set;
  Source source;
  nn::Compute compute;
  std::shared_ptr<draft::Drafter> model;
  nn::Table table;
  nn::Head head;
  at::Tensor norm_D;
  TrainOptions options;
};

inline std::map<std::string, at::Tensor> copy_weights(const draft::Drafter& model) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, tensor] : model.parameters()) out[name] = tensor.detach().clone();
  return out;
}

/// Every tensor bit-equal; names the first that is not.
inline void expect_equal(const std::map<std::string, at::Tensor>& got,
                         const std::map<std::string, at::Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_TRUE(got.at(name).detach().equal(tensor.detach())) << name;
  }
}

}  // namespace dflash::train::toy
