// One training step of a drafter of SmolLM2-135M's size on random data: 2 layers, block 8, 64
// anchors, 512 tokens, 5 taps. Prints one JSON line; peer: bench/speculators_step.py.
//
//   train_bench [compute=bf16|f32] [draft_vocab=0|8192] [optimizer=adamw|muon] [steps=7]
//               [anchors=64] [tokens=512]
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <sys/resource.h>

#include <cstdio>
#include <exception>

#include "base/error.h"
#include "draft/drafter.h"
#include "nn/compute.h"
#include "train/trainer.h"

namespace dflash {
namespace {

constexpr int64_t kVocab = 49152, kWidth = 576, kTaps = 5;

using Settings = std::map<std::string, std::string>;

Settings parse(int argc, char** argv) {
  Settings settings = {{"compute", std::string(nn::compute_name(nn::default_compute()))},
                       {"draft_vocab", "0"},
                       {"optimizer", "adamw"},
                       {"steps", "7"},
                       {"anchors", "64"},
                       {"tokens", "512"}};
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equal = text.find('=');
    if (equal == std::string::npos || !settings.contains(text.substr(0, equal))) {
      fail(
          "train_bench: {}: expected one of compute= draft_vocab= optimizer= steps= anchors= "
          "tokens=",
          text);
    }
    settings[text.substr(0, equal)] = text.substr(equal + 1);
  }
  return settings;
}

draft::DraftSpec make_spec() {
  draft::DraftSpec spec;
  spec.num_layers = 2;
  spec.hidden_size = spec.target_hidden_size = kWidth;
  spec.num_heads = 9;
  spec.num_kv_heads = 3;
  spec.head_dim = 64;
  spec.intermediate_size = 1536;
  spec.rms_norm_eps = 1e-5;
  spec.rope.theta = 100000.0;
  spec.taps = {1, 8, 14, 20, 27};
  spec.target_num_layers = 30;
  spec.vocab_size = kVocab;
  spec.rule = {.block_size = 8, .mask_id = 16, .slot_shift = 0, .layers = {{}, {}}};
  return spec;
}

/// The same random features for every document, stored as capture stores them.
class RandomSource : public train::FeatureSource {
 public:
  RandomSource(const data::Dataset& set, int64_t tokens, int64_t labels) : set_(set) {
    taps_TF_ = at::randn({tokens, kTaps * kWidth}, at::kFloat).to(at::kBFloat16);
    argmax_ = at::randint(labels, {tokens}, at::kLong);
  }
  train::FeatureRow row(const std::vector<data::PackedPlan::Piece>& pieces) override {
    train::FeatureRow row;
    const auto ids = set_.document_ids(pieces[0].document);
    row.ids.assign(ids.begin(), ids.end());
    row.loss_mask.assign(ids.size(), 1);
    row.doc.assign(ids.size(), 0);
    for (size_t t = 0; t < ids.size(); ++t) row.pos.push_back(static_cast<int64_t>(t));
    row.document = {pieces[0].document};
    row.taps_TF = taps_TF_.clone();
    row.argmax.assign(argmax_.data_ptr<int64_t>(), argmax_.data_ptr<int64_t>() + argmax_.numel());
    return row;
  }
  int64_t feature_size() const override { return kTaps * kWidth; }
  bool has_last() const override { return false; }

 private:
  const data::Dataset& set_;
  at::Tensor taps_TF_, argmax_;
};

double peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

data::Dataset random_documents(int64_t tokens) {
  data::Dataset set;
  for (int64_t d = 0; d < 4; ++d) {
    const at::Tensor ids = at::randint(kVocab, {tokens}, at::kLong);
    const int64_t* data = ids.const_data_ptr<int64_t>();
    set.add({.ids = std::vector<int64_t>(data, data + tokens),
             .loss_mask = std::vector<uint8_t>(static_cast<size_t>(tokens), 1)});
  }
  return set;
}

/// Median seconds of a step and mean seconds of its phases, after two steps of warming up.
Json measure(train::Trainer& trainer, int64_t steps, int64_t anchors) {
  std::vector<double> total;
  train::PhaseSeconds phases;
  for (int64_t i = 0; i < steps + 2; ++i) {
    const train::StepMetrics metrics = trainer.step();
    DF_ASSERT(metrics.applied && metrics.anchors == anchors, "anchors={}", metrics.anchors);
    if (i < 2) continue;
    total.push_back(metrics.seconds.total());
    phases.gather += metrics.seconds.gather / static_cast<double>(steps);
    phases.forward += metrics.seconds.forward / static_cast<double>(steps);
    phases.loss += metrics.seconds.loss / static_cast<double>(steps);
    phases.backward += metrics.seconds.backward / static_cast<double>(steps);
    phases.update += metrics.seconds.update / static_cast<double>(steps);
  }
  return {{"median_seconds", median(total)},
          {"anchors_per_second", static_cast<double>(anchors) / median(total)},
          {"peak_rss_mb", peak_rss_mb()},
          {"mean_phases",
           {{"gather", phases.gather},
            {"forward", phases.forward},
            {"loss", phases.loss},
            {"backward", phases.backward},
            {"update", phases.update}}}};
}

int run(const Settings& settings) {
  const nn::Compute compute = nn::parse_compute(settings.at("compute"));
  const int64_t tokens = std::stoll(settings.at("tokens")),
                anchors = std::stoll(settings.at("anchors")),
                reduced = std::stoll(settings.at("draft_vocab"));
  const int64_t labels = reduced > 0 ? reduced : kVocab;
  const data::Dataset set = random_documents(tokens);
  RandomSource source(set, tokens, labels);
  nn::Table table;
  table.weight_VD = (at::randn({kVocab, kWidth}, at::kFloat) * 0.05)
                        .to(compute == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat);
  nn::Head head;
  head.num_ids = kVocab;
  head.linear = nn::Linear(table.weight_VD.narrow(0, 0, labels), {}, compute);
  if (reduced > 0) head.id_V = at::arange(reduced, at::kLong);

  train::TrainOptions options;
  options.optimizer.kind = train::parse_optimizer(settings.at("optimizer"));
  options.row_tokens = tokens;
  options.anchors_per_document = options.anchors_per_step = anchors;
  options.total_steps = 1000;
  train::Trainer trainer(
      {set, source, draft::Drafter::create(make_spec(), compute, 1), table, head}, options);
  Json result = {{"program", "dflash.cpp"},
                 {"compute", settings.at("compute")},
                 {"vocabulary", labels},
                 {"optimizer", settings.at("optimizer")},
                 {"loss", "ce"},
                 {"anchors", anchors},
                 {"tokens", tokens},
                 {"threads", nn::num_threads()},
                 {"kernels", nn::kernel_name(compute)},
                 {"head", trainer.header()["head"]}};
  result.update(measure(trainer, std::stoll(settings.at("steps")), anchors));
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace dflash

int main(int argc, char** argv) {
  try {
    return dflash::run(dflash::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
