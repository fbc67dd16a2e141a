#include "jobs/training.h"

#include <signal.h>

#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/stop.h"
#include "decode/proposers.h"
#include "draft/formats.h"
#include "draft/zlab.h"
#include "train/ranks.h"

namespace dflash::jobs {
namespace {

/// What all parts of a run share while it lasts.
struct Inputs {
  data::Dataset dataset;
  std::shared_ptr<const data::FeatureReader> features;  // null: live
  std::shared_ptr<draft::Drafter> drafter;
  std::unique_ptr<train::FeatureSource> source;
};

/// Features depend on token ids alone, so those of another dataset do where the ids are the same
/// (other masks, documents appended since). Error at the first document where they are not.
void check_documents(const data::FeatureReader& features, const data::Dataset& dataset) {
  const std::string now = data::dataset_fingerprint(dataset);
  if (features.info().dataset_fingerprint == now) return;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    if (features.has(d)) features.get(d, dataset.document_ids(d));
  }
  log_warning("features were captured from dataset {}, this one is {}; the ids are the same",
              features.info().dataset_fingerprint, now);
}

/// A given drafter with this target's fingerprints. Error: sizes of another target.
std::shared_ptr<draft::Drafter> adopt(const Model& model, const std::filesystem::path& folder) {
  const auto given = draft::load_drafter(folder, model.target->compute());
  draft::DraftSpec spec = given->spec();
  const auto& config = model.target->config();
  if (spec.target_num_layers == 0) spec.target_num_layers = config.num_layers;  // unsaid
  if (spec.target_hidden_size != config.hidden_size ||
      spec.target_num_layers != config.num_layers) {
    fail("drafter {}: made for a target of {} blocks, hidden {}; this one has {}, {}",
         folder.string(), spec.target_num_layers, spec.target_hidden_size, config.num_layers,
         config.hidden_size);
  }
  if (spec.target_fingerprint != model.target->fingerprint()) {
    log_warning("{} was trained for another target; from now on it counts as this one's",
                folder.string());
  }
  spec.target_fingerprint = model.target->fingerprint();
  spec.tokenizer_fingerprint = model.tokenizer->fingerprint();
  if (!given->own_tables().any()) spec.vocab_size = config.vocab_size;
  auto drafter = draft::Drafter::from_weights(spec, model.target->compute(), given->parameters());
  drafter->set_own_tables(given->own_tables());
  return drafter;
}

/// On resume the drafter is the checkpoint's, whatever the options of a fresh one say now.
std::shared_ptr<draft::Drafter> make_drafter(const Model& model, const Inputs& inputs,
                                             const TrainingOptions& options) {
  const auto latest = options.resume
                          ? train::common_checkpoint(*options.comm, options.out / "checkpoints")
                          : std::nullopt;
  if (latest) return adopt(model, latest->path / "model");
  if (!options.init_from.empty()) {
    log_info("starting from {} (its own sizes, taps and rules)", options.init_from.string());
    return adopt(model, options.init_from);
  }
  NewDrafterOptions fresh = options.drafter;
  if (fresh.taps.empty() && inputs.features) fresh.taps = inputs.features->info().taps;
  return new_drafter(model, new_draft_spec(model, inputs.dataset, fresh), fresh);
}

/// Documents that capture left out train nothing.
void drop_absent(data::Dataset& dataset, const data::FeatureReader& features) {
  int64_t absent = 0;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    if (features.has(d)) continue;
    ++absent;
    std::fill(dataset.loss_mask.begin() + dataset.offsets[d],
              dataset.loss_mask.begin() + dataset.offsets[d + 1], uint8_t{0});
  }
  if (absent > 0) log_warning("{} documents have no features and train nothing", absent);
}

Inputs open_inputs(const Model& model, const TrainingOptions& options) {
  Inputs inputs;
  inputs.dataset = data::load_dataset(options.dataset);
  if (!options.features.empty()) {
    inputs.features = std::make_shared<data::FeatureReader>(options.features);
    data::check_features(inputs.features->info(), {}, model.target->config().hidden_size,
                         model.target->fingerprint());
    inputs.features->check_vocabulary(model.target->config().vocab_size);
    check_documents(*inputs.features, inputs.dataset);
    drop_absent(inputs.dataset, *inputs.features);
  }
  inputs.drafter = make_drafter(model, inputs, options);
  const auto& taps = inputs.drafter->spec().taps;
  if (inputs.features) {
    data::check_features(inputs.features->info(), taps, model.target->config().hidden_size,
                         model.target->fingerprint());
  }
  inputs.source = inputs.features ? train::file_source(inputs.dataset, inputs.features)
                                  : train::live_source(inputs.dataset, model.target, taps,
                                                       options.train.loss.needs_teacher());
  return inputs;
}

void log_header(const Model& model, const Inputs& inputs, const train::Trainer& trainer) {
  const auto& spec = inputs.drafter->spec();
  const auto vocabulary =
      spec.draft_ids.empty() ? spec.vocab_size : static_cast<int64_t>(spec.draft_ids.size());
  log_info("target  {}", describe(*model.target));
  log_info("drafter {}, block {}, taps {}, mask id {}, vocabulary {}",
           counted(spec.num_layers, "layers"), spec.rule.block_size, fmt::join(spec.taps, ","),
           spec.rule.mask_id, vocabulary);
  log_info("data    {} documents, {} tokens, {} supervised, features {}",
           inputs.dataset.num_documents(), inputs.dataset.num_tokens(),
           inputs.dataset.num_supervised(), inputs.features ? "from files" : "live");
  log_info("loss    {}", trainer.loss_rule());
}

}  // namespace

train::RunResult train_drafter(const Model& model, const TrainingOptions& options,
                               const std::function<Json(const draft::Drafter&)>& validate) {
  const bool leads = options.comm->leads();  // it writes for all
  if (leads) claim_folder(options.out, "run.json");
  const std::unique_ptr<OutputLock> lock(leads ? new OutputLock(lock_folder(options.out))
                                               : nullptr);
  Inputs inputs = open_inputs(model, options);
  inputs.drafter->set_requires_grad(true);
  const bool other_teacher =
      options.train.loss.needs_teacher() && inputs.drafter->own_tables().head_VD.defined();
  train::Trainer trainer(
      {.dataset = inputs.dataset,
       .source = *inputs.source,
       .drafter = inputs.drafter,
       .table = decode::draft_table(*model.target, *inputs.drafter),
       .head = decode::draft_head(*model.target, *inputs.drafter),
       .final_norm = [&](const at::Tensor& last_RD) { return model.target->final_norm(last_RD); },
       .teacher_head =
           other_teacher ? std::optional(decode::draft_head(*model.target, inputs.drafter->spec()))
                         : std::nullopt,
       .comm = options.comm},
      options.train);
  log_header(model, inputs, trainer);
  std::unique_ptr<Progress> progress;
  train::TrainCallbacks callbacks;
  callbacks.validate = validate;
  callbacks.should_stop = [] { return stop_requested(); };
  callbacks.on_step = [&](const train::StepMetrics& metrics) {
    if (!progress) {
      progress =
          std::make_unique<Progress>("train", "steps", trainer.total_steps(), metrics.step - 1);
    }
    progress->set_total(trainer.total_steps());
    progress->update(metrics.step, fmt::format("loss {:.3f}, expected acceptance {:.2f}",
                                               metrics.loss, metrics.slots.expected_acceptance()));
  };
  Json config = options.config;
  config["target"] = describe(*model.target);
  config["target_fingerprint"] = model.target->fingerprint();
  config["dataset"] = options.dataset.string();
  config["features"] = options.features.string();
  config["drafter"] = draft::zlab_config(inputs.drafter->spec(), nn::Compute::kF32);
  const train::RunOptions run{.folder = options.out,
                              .resume = options.resume,
                              .config = config,
                              .max_seconds = options.max_seconds};
  auto result = train::run_training(trainer, run, callbacks);
  if (!result.finished && !stop_requested()) set_stop_signal(SIGTERM);  // another rank was asked
  if (progress) progress->finish(fmt::format("{:.0f} anchors/s", result.anchors_per_second));
  return result;
}

}  // namespace dflash::jobs
