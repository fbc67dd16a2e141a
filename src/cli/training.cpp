#include "cli/training.h"

#include "base/error.h"
#include "base/stop.h"
#include "cli/checks.h"
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
  app.add_option("--layers", options.num_layers, "layers of the drafter")
      ->check(integer_from(1, 64));
  app.add_option("--block-size", options.block_size, "slots of a block, its anchor included")
      ->check(integer_from(2, 64));
  app.add_option("--num-taps", options.num_taps,
                 "tapped blocks of the target, evenly spread (without --taps)")
      ->check(integer_from(1, 64));
  app.add_option("--taps", options.taps, "tapped blocks of the target by number: 1,8,15")
      ->delimiter(',')
      ->check(distinct_blocks());
  app.add_option("--mask-id", options.mask_id, "mask token (-1: an unused one of the target)")
      ->check(integer_from(-1));
  app.add_option("--draft-vocab", options.draft_vocab,
                 "draft only so many tokens, the most frequent of the answers (0: all)")
      ->check(integer_from(0));
  app.add_option("--window", options.window, "sliding window of every layer, in tokens (0: full)")
      ->check(integer_from(0));
  app.add_option("--window-bound", options.window_bound,
                 "row from which the window counts: the slot's own (query) or its anchor's")
      ->check(CLI::IsMember({"query", "anchor"}));
  app.add_option("--in-block", options.in_block, "what a slot sees of its own block")
      ->check(CLI::IsMember({"bidirectional", "causal"}));
  app.add_option("--init-seed", options.seed, "seed of the fresh weights");
}

namespace {

void add_loss_options(CLI::App& app, train::TrainOptions& options, TrainingFlags& flags) {
  app.add_option("--loss", flags.loss,
                 "loss: ce, kl, rkl, jsd, tv, nla, lk, or a sum like 0.5*ce+0.5*kl");
  app.add_option("--labels", flags.labels, "target: its argmax; data: the token of the data")
      ->check(CLI::IsMember({"target", "data"}));
  app.add_option("--weighting", flags.weighting,
                 "weights of the slots: decay (by --gamma), dpace or streak")
      ->check(CLI::IsMember({"decay", "dpace", "streak"}));
  app.add_option("--gamma", options.loss.gamma,
                 "slots in which the weight decays to 1/e (0: equal weights)")
      ->check(number_from(0));
  app.add_option("--optimizer", flags.optimizer, "muon (matrices; AdamW the rest) or adamw")
      ->check(CLI::IsMember({"muon", "adamw"}));
  app.add_option("--lr", options.optimizer.lr, "peak rate of AdamW")->check(number_from(0));
  app.add_option("--muon-lr", options.optimizer.muon_lr, "peak rate of Muon")
      ->check(number_from(0));
  app.add_option("--weight-decay", options.optimizer.weight_decay, "decoupled weight decay")
      ->check(number_from(0));
  app.add_option("--clip", options.optimizer.clip_norm,
                 "largest global norm of the gradient (0: no limit)")
      ->check(number_from(0));
  app.add_option("--warmup", options.warmup_share, "share of the steps in which the rate rises")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--noise", flags.noise, "noise on the drafter's input features")
      ->check(CLI::IsMember({"none", "gaussian", "uniform"}));
  app.add_option("--noise-scale", options.noise.scale,
                 "standard deviation (gaussian) or half width (uniform) of the noise")
      ->check(number_from(0));
  app.add_flag("--noise-anneal", options.noise.anneal, "noise falls to zero as a cosine");
}

/// How much is trained at once, how long, and what is kept.
void add_schedule_options(CLI::App& app, train::TrainOptions& options) {
  app.add_option("--row-tokens", options.row_tokens, "tokens of a packed row")
      ->check(integer_from(2));
  app.add_option("--anchors-per-document", options.anchors_per_document,
                 "anchors drawn of a document in an epoch, at most")
      ->check(integer_from(1));
  app.add_option("--anchors-per-step", options.anchors_per_step,
                 "anchors of a step, at least (whole rows)")
      ->check(integer_from(1));
  app.add_option("--epochs", options.epochs, "passes over the dataset (without --steps, --minutes)")
      ->check(integer_from(0));
  app.add_option("--steps", options.total_steps, "steps of the run (0: --epochs or --minutes)")
      ->check(integer_from(0));
  app.add_option("--save-every", options.save_every, "steps between checkpoints (0: at the end)")
      ->check(integer_from(0));
  app.add_option("--validate-every", options.validate_every,
                 "steps between validations (0: at the end)")
      ->check(integer_from(0));
  app.add_option("--keep-last", options.keep_last, "checkpoints kept besides the best")
      ->check(integer_from(1));
  app.add_option("--seed", options.seed, "seed of the order of documents, anchors and noise");
}

}  // namespace

void add_train_options(CLI::App& app, train::TrainOptions& options, TrainingFlags& flags) {
  add_loss_options(app, options, flags);
  add_schedule_options(app, options);
}

void ValidationOptions::add(CLI::App& app) {
  app.add_option("--validate", prompts, "held-out prompts (.jsonl or .json), decoded for real");
  app.add_option("--validate-limit", limit, "prompts of a validation, the first ones (0: all)")
      ->check(integer_from(0));
  app.add_option("--validate-max-new", max_new_tokens, "tokens of a validation answer at most")
      ->check(integer_from(2, kMaxNewTokens));
}

std::function<Json(const draft::Drafter&)> ValidationOptions::callback(const jobs::Model& model,
                                                                       const Comm& comm) const {
  if (prompts.empty()) return {};
  if (!comm.leads()) return [](const draft::Drafter&) { return Json(); };
  auto requests = validation_requests(model, *this);
  return [&model, requests = std::move(requests)](const draft::Drafter& drafter) {
    const auto unowned = std::shared_ptr<const draft::Drafter>(&drafter, [](const auto*) {});
    auto proposer = decode::make_draft_proposer(unowned, *model.target);
    decode::EngineOptions engine;
    engine.max_batch = static_cast<int64_t>(requests.size());
    engine.should_stop = [] { return stop_requested(); };
    const auto run = decode::generate(*model.target, proposer.get(), requests, engine);
    if (stop_requested()) return Json();  // no figure of half the prompts
    AcceptanceCounts counts;
    for (const auto& result : run.results) counts.merge(result.counts);
    return counts.to_json();
  };
}

}  // namespace dflash::cli
