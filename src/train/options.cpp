#include "train/options.h"

#include "base/error.h"

namespace dflash::train {
namespace {

void at_least(std::string_view name, double value, double bound) {
  if (!(value >= bound)) fail("train: {}: expected at least {}, got {}", name, bound, value);
}

std::string_view noise_name(NoiseKind kind) {
  return kind == NoiseKind::kGaussian  ? "gaussian"
         : kind == NoiseKind::kUniform ? "uniform"
                                       : "none";
}

}  // namespace

Json TrainOptions::to_json() const {
  return {{"loss", loss.to_json()},
          {"optimizer", optimizer.to_json()},
          {"noise",
           {{"kind", noise_name(noise.kind)}, {"scale", noise.scale}, {"anneal", noise.anneal}}},
          {"row_tokens", row_tokens},
          {"anchors_per_document", anchors_per_document},
          {"anchors_per_step", anchors_per_step},
          {"anchors_per_pass", anchors_per_pass},
          {"seed", seed},
          {"epochs", epochs},
          {"total_steps", total_steps},
          {"warmup_share", warmup_share},
          {"save_every", save_every},
          {"validate_every", validate_every},
          {"keep_last", keep_last},
          {"max_bad_steps", max_bad_steps}};
}

void check_options(const TrainOptions& options) {
  at_least("row_tokens", static_cast<double>(options.row_tokens), 2);
  at_least("anchors_per_document", static_cast<double>(options.anchors_per_document), 1);
  at_least("anchors_per_step", static_cast<double>(options.anchors_per_step), 1);
  at_least("anchors_per_pass", static_cast<double>(options.anchors_per_pass), 1);
  at_least("epochs", static_cast<double>(options.epochs), options.total_steps > 0 ? 0 : 1);
  at_least("total_steps", static_cast<double>(options.total_steps), 0);
  at_least("warmup_share", options.warmup_share, 0);
  at_least("noise scale", options.noise.scale, 0);
  at_least("save_every", static_cast<double>(options.save_every), 0);
  at_least("validate_every", static_cast<double>(options.validate_every), 0);
  at_least("keep_last", static_cast<double>(options.keep_last), 0);
  at_least("gamma", options.loss.gamma, 0);
  at_least("clip_norm", options.optimizer.clip_norm, 0);
  at_least("lr", options.optimizer.lr, 0);
  at_least("muon_lr", options.optimizer.muon_lr, 0);
  constexpr double kMost = 1e6;  // beyond it f32 overflows in a step
  for (const auto& [name, value] : {std::pair("lr", options.optimizer.lr),
                                    {"muon_lr", options.optimizer.muon_lr},
                                    {"weight_decay", options.optimizer.weight_decay},
                                    {"noise scale", options.noise.scale},
                                    {"gamma", options.loss.gamma}}) {
    if (!(value <= kMost)) fail("train: {}: expected at most {:g}, got {}", name, kMost, value);
  }
  if (!(options.optimizer.muon_momentum > 0 && options.optimizer.muon_momentum < 1)) {
    fail("train: muon_momentum: expected between 0 and 1, got {}", options.optimizer.muon_momentum);
  }
  at_least("max_bad_steps", static_cast<double>(options.max_bad_steps), 1);
  if (options.warmup_share > 1) fail("train: warmup_share: expected at most 1");
  if (options.loss.terms.empty()) fail("train: loss: expected at least one term");
}

}  // namespace dflash::train
