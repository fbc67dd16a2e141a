// One training step of a drafter of SmolLM2-135M's size on random data: by default 2 layers, block
// 8, 64 anchors, 512 tokens, 5 taps. Prints one JSON line; peer: bench/speculators_step.py.
//
//   train_bench [compute=bf16|f32] [draft_vocab=0|8192] [optimizer=adamw|muon] [steps=7]
//               [layers=2] [block=8] [anchors=64] [tokens=512]
//               [gemm=1]     also the GEMM rate of the step's shapes, measured between steps
//               [growth=1]   only the growth in context and anchors (train_growth.h)
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <cstdio>
#include <exception>

#include "base/error.h"
#include "common.h"
#include "draft/drafter.h"
#include "gemm_rate.h"
#include "nn/compute.h"
#include "train/trainer.h"
#include "train_growth.h"
#include "train_sizes.h"

namespace dflash {
namespace {

Settings parse(int argc, char** argv) {
  Settings settings = {{"compute", std::string(nn::compute_name(nn::default_compute()))},
                       {"draft_vocab", "0"},
                       {"optimizer", "adamw"},
                       {"steps", "7"},
                       {"layers", "2"},
                       {"block", "8"},
                       {"anchors", "64"},
                       {"tokens", "512"},
                       {"gemm", "0"},
                       {"growth", "0"}};
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equal = text.find('=');
    if (equal == std::string::npos || !settings.contains(text.substr(0, equal))) {
      fail(
          "train_bench: {}: expected one of compute= draft_vocab= optimizer= steps= layers= block= "
          "anchors= tokens= gemm= growth=",
          text);
    }
    settings[text.substr(0, equal)] = text.substr(equal + 1);
  }
  return settings;
}

/// The same random features for every document, stored as capture stores them.
class RandomSource : public train::FeatureSource {
 public:
  RandomSource(const data::Dataset& set, int64_t tokens, int64_t labels) : set_(set) {
    taps_TF_ =
        at::randn({tokens, StepSizes::kTaps * StepSizes::kWidth}, at::kFloat).to(at::kBFloat16);
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
  int64_t feature_size() const override { return StepSizes::kTaps * StepSizes::kWidth; }
  bool has_last() const override { return false; }

 private:
  const data::Dataset& set_;
  at::Tensor taps_TF_, argmax_;
};

data::Dataset random_documents(int64_t tokens) {
  data::Dataset set;
  for (int64_t d = 0; d < 4; ++d) {
    const at::Tensor ids = at::randint(StepSizes::kVocab, {tokens}, at::kLong);
    const int64_t* data = ids.const_data_ptr<int64_t>();
    set.add({.ids = std::vector<int64_t>(data, data + tokens),
             .loss_mask = std::vector<uint8_t>(static_cast<size_t>(tokens), 1)});
  }
  return set;
}

/// The target's table, bf16 or f32: drawn in place, so that no copy of it makes the peak.
nn::Table random_table(nn::Compute compute) {
  nn::Table table;
  table.weight_VD = at::empty({StepSizes::kVocab, StepSizes::kWidth},
                              compute == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat);
  table.weight_VD.normal_(0, 0.05);
  return table;
}

/// Median seconds of a step and mean seconds of its phases, after two steps of warming up, which
/// also give the peak of the memory: products measured in between have matrices of their own.
Json measure(train::Trainer& trainer, StepSizes sizes, int64_t steps,
             std::optional<nn::Compute> gemm_compute) {
  std::vector<double> total, updates, orthogonal;
  train::PhaseSeconds phases;
  std::optional<GemmRate> gemm;
  const double before_mb = reset_peak_rss_mb();
  Json result;
  for (int64_t i = 0; i < steps + 2; ++i) {
    const train::StepMetrics metrics = trainer.step();
    DF_ASSERT(metrics.applied && metrics.anchors == sizes.anchors, "anchors={}", metrics.anchors);
    if (i < 2) continue;
    total.push_back(metrics.seconds.total());
    updates.push_back(metrics.seconds.update);
    orthogonal.push_back(metrics.seconds.orthogonalise);
    phases += metrics.seconds;
    sizes.trained_slots = metrics.trained_slots;
    if (i == 2) {
      result["peak_rss_mb"] = peak_rss_mb();
      result["step_memory_mb"] = peak_rss_mb() - before_mb;
    }
    if (gemm_compute && !gemm) gemm.emplace(step_products(sizes), *gemm_compute);
    if (gemm) gemm->round();
  }
  const double seconds = median(total);
  double operations = attention_operations(sizes);
  for (const StepProduct& product : step_products(sizes)) operations += product.operations();
  phases /= static_cast<double>(steps);
  result.update({{"median_seconds", seconds},
                 {"least_seconds", *std::min_element(total.begin(), total.end())},
                 {"anchors_per_second", static_cast<double>(sizes.anchors) / seconds},
                 {"mean_phases", phases.to_json()},
                 {"optimizer_seconds", median(updates)},
                 {"orthogonalise_seconds", median(orthogonal)},
                 {"orthogonalise_share", median(orthogonal) / seconds},
                 {"operations", operations},
                 {"gflops", operations / seconds / 1e9}});
  if (gemm) {
    result["gemm_gflops"] = gemm->rate() / 1e9;
    result["gemm_share"] = operations / seconds / gemm->rate();
  }
  return result;
}

StepSizes sizes_of(const Settings& settings) {
  const auto number = [&](const char* name) { return std::stoll(settings.at(name)); };
  StepSizes sizes{.layers = number("layers"),
                  .block = number("block"),
                  .tokens = number("tokens"),
                  .anchors = number("anchors")};
  sizes.labels = number("draft_vocab") > 0 ? number("draft_vocab") : StepSizes::kVocab;
  return sizes;
}

int run(const Settings& settings) {
  const nn::Compute compute = nn::parse_compute(settings.at("compute"));
  const StepSizes sizes = sizes_of(settings);
  const data::Dataset set = random_documents(sizes.tokens);
  RandomSource source(set, sizes.tokens, sizes.labels);
  const nn::Table table = random_table(compute);
  nn::Head head;
  head.num_ids = StepSizes::kVocab;
  head.linear = nn::Linear(table.weight_VD.narrow(0, 0, sizes.labels), {}, compute);
  if (settings.at("draft_vocab") != "0") head.id_V = at::arange(sizes.labels, at::kLong);

  train::TrainOptions options;
  options.optimizer.kind = train::parse_optimizer(settings.at("optimizer"));
  options.row_tokens = sizes.tokens;
  options.anchors_per_document = options.anchors_per_step = sizes.anchors;
  options.total_steps = 1000;
  train::Trainer trainer(
      {set, source, draft::Drafter::create(sizes.spec(), compute, 1), table, head}, options);
  Json result = {{"program", "dflash.cpp"},
                 {"compute", settings.at("compute")},
                 {"vocabulary", sizes.labels},
                 {"optimizer", settings.at("optimizer")},
                 {"loss", "ce"},
                 {"layers", sizes.layers},
                 {"block", sizes.block},
                 {"anchors", sizes.anchors},
                 {"tokens", sizes.tokens},
                 {"threads", nn::num_threads()},
                 {"kernels", nn::kernel_name(compute)},
                 {"head", trainer.header()["head"]}};
  const bool with_gemm = settings.at("gemm") == "1";
  result.update(measure(trainer, sizes, std::stoll(settings.at("steps")),
                        with_gemm ? std::optional(compute) : std::nullopt));
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace dflash

int main(int argc, char** argv) {
  try {
    const auto settings = dflash::parse(argc, argv);
    return settings.at("growth") == "1" ? dflash::print_growth(settings) : dflash::run(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
