#include "cli/training.h"

#include "base/error.h"
#include "cli/drafters.h"
#include "decode/proposers.h"
#include "jobs/prompts.h"

namespace dflash::cli {
namespace {

train::NoiseKind parse_noise(const std::string& name) {
  if (name == "gaussian") return train::NoiseKind::kGaussian;
  if (name == "uniform") return train::NoiseKind::kUniform;
  return train::NoiseKind::kNone;
}

std::vector<decode::Request> validation_requests(const jobs::Model& model,
                                                 const ValidationOptions& options) {
  std::vector<decode::Request> requests;
  for (const auto& prompt : jobs::read_prompts(options.prompts, options.limit).prompts) {
    auto encoded = jobs::encode_prompt(model, prompt);
    if (!encoded.refused.empty()) {
      log_warning("validation prompt {}: left out, {}", prompt.id, encoded.refused);
      continue;
    }
    decode::Request request;
    request.prompt = std::move(encoded.ids);
    request.max_new_tokens = options.max_new_tokens;
    request.stop_ids = model.tokenizer->stop_ids();
    requests.push_back(std::move(request));
  }
  if (requests.empty()) fail("{}: no prompt can be decoded", options.prompts);
  return requests;
}

}  // namespace

void TrainingFlags::apply(jobs::TrainingOptions& options) const {
  options.dataset = dataset;
  options.features = features;
  options.out = out;
  if (!init_from.empty()) options.init_from = resolve_drafter(init_from);
  options.max_seconds = minutes * 60;
  auto& train = options.train;
  train.loss.terms = train::parse_loss(loss);
  train.loss.labels =
      labels == "data" ? train::LabelSource::kDataToken : train::LabelSource::kTargetArgmax;
  train.loss.slot_weights = train::parse_slot_weights(weighting);
  train.optimizer.kind = train::parse_optimizer(optimizer);
  train.noise.kind = parse_noise(noise);
}

void add_drafter_options(CLI::App& app, jobs::NewDrafterOptions& options) {
  app.add_option("--layers", options.num_layers, "depth of the drafter")->check(CLI::Range(1, 64));
  app.add_option("--block-size", options.block_size, "slots with the anchor")
      ->check(CLI::Range(2, 64));
  app.add_option("--num-taps", options.num_taps, "tapped blocks, evenly spread")
      ->check(CLI::Range(1, 64));
  app.add_option("--taps", options.taps, "0-based tapped blocks, instead")->delimiter(',');
  app.add_option("--mask-id", options.mask_id, "mask token (-1: an unused one of the target)");
  app.add_option("--draft-vocab", options.draft_vocab, "most frequent answer tokens (0: all)");
  app.add_option("--window", options.window, "sliding window of every layer (0: full)");
  app.add_option("--window-bound", options.window_bound, "query or anchor")
      ->check(CLI::IsMember({"query", "anchor"}));
  app.add_option("--in-block", options.in_block, "bidirectional or causal")
      ->check(CLI::IsMember({"bidirectional", "causal"}));
  app.add_option("--init-seed", options.seed, "of the fresh weights");
}

void add_train_options(CLI::App& app, train::TrainOptions& options, TrainingFlags& flags) {
  app.add_option("--loss", flags.loss, "ce, kl, rkl, jsd, tv, nla, lk, or a sum 0.5*ce+0.5*kl");
  app.add_option("--labels", flags.labels, "target: its argmax; data: the token of the data")
      ->check(CLI::IsMember({"target", "data"}));
  app.add_option("--weighting", flags.weighting, "decay (by --gamma), dpace or streak")
      ->check(CLI::IsMember({"decay", "dpace", "streak"}));
  app.add_option("--gamma", options.loss.gamma, "slots per e-fold of the decay (0: none)");
  app.add_option("--optimizer", flags.optimizer, "muon (matrices; AdamW the rest) or adamw")
      ->check(CLI::IsMember({"muon", "adamw"}));
  app.add_option("--lr", options.optimizer.lr, "peak rate of AdamW");
  app.add_option("--muon-lr", options.optimizer.muon_lr, "peak rate of Muon");
  app.add_option("--weight-decay", options.optimizer.weight_decay, "decoupled");
  app.add_option("--clip", options.optimizer.clip_norm, "global gradient norm (0: none)");
  app.add_option("--warmup", options.warmup_share, "share of the steps");
  app.add_option("--noise", flags.noise, "on the drafter's input features")
      ->check(CLI::IsMember({"none", "gaussian", "uniform"}));
  app.add_option("--noise-scale", options.noise.scale, "standard deviation, or half width");
  app.add_flag("--noise-anneal", options.noise.anneal, "cosine to zero instead of constant");
  app.add_option("--row-tokens", options.row_tokens, "tokens of a packed row");
  app.add_option("--anchors-per-document", options.anchors_per_document, "in one epoch");
  app.add_option("--anchors-per-step", options.anchors_per_step, "at least, in whole rows");
  app.add_option("--epochs", options.epochs, "passes over the dataset");
  app.add_option("--steps", options.total_steps, "instead of epochs (0: epochs decide)");
  app.add_option("--save-every", options.save_every, "steps between checkpoints (0: at the end)");
  app.add_option("--validate-every", options.validate_every, "steps (0: at the end)");
  app.add_option("--keep-last", options.keep_last, "checkpoints kept besides the best");
  app.add_option("--seed", options.seed, "order of documents, anchors and noise");
}

void ValidationOptions::add(CLI::App& app) {
  app.add_option("--validate", prompts, "jsonl of held-out prompts, decoded for real");
  app.add_option("--validate-limit", limit, "prompts of a validation");
  app.add_option("--validate-max-new", max_new_tokens, "tokens of an answer");
}

std::function<Json(const draft::Drafter&)> ValidationOptions::callback(
    const jobs::Model& model) const {
  if (prompts.empty()) return {};
  auto requests = validation_requests(model, *this);
  return [&model, requests = std::move(requests)](const draft::Drafter& drafter) {
    const auto unowned = std::shared_ptr<const draft::Drafter>(&drafter, [](const auto*) {});
    auto proposer = decode::make_draft_proposer(unowned, *model.target);
    decode::EngineOptions engine;
    engine.max_batch = static_cast<int64_t>(requests.size());
    const auto run = decode::generate(*model.target, proposer.get(), requests, engine);
    AcceptanceCounts counts;
    for (const auto& result : run.results) counts.merge(result.counts);
    return counts.to_json();
  };
}

}  // namespace dflash::cli
