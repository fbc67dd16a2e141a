// Losses of trained slots and their gradients with respect to the drafter's hidden rows; the head
// is frozen, so logits are never kept (vocabulary.h). Formulas: MODELS.md 4.8. With p the target's
// and q the drafter's distribution of a slot:
//   ce    -log q(label)                  kl   KL(p|q)          rkl  KL(q|p)
//   jsd   (KL(p|m) + KL(q|m)) / 2        tv   1 - sum min(p,q) nla  -log sum min(p,q)
//   lk    lambda kl + (1 - lambda) tv, lambda = exp(-3 sum min(p,q)) held constant
//
// Rule of normalisation: L = sum of weight * loss over all trained slots of a step, divided by the
// sum of their weights over all passes of that step (R-LOSS-2, R-LOSS-3). Rows carry loss and
// gradient of weight 1; the trainer multiplies by weights (which D-PACE and streak take from the
// same pass) and divides once, before clipping.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "block/blocks.h"
#include "train/vocabulary.h"

namespace dflash::train {

enum class LossKind { kCrossEntropy, kKl, kReverseKl, kJsd, kTv, kNla, kLkHybrid };
enum class LabelSource { kTargetArgmax, kDataToken };
/// kDecay: fixed. The other two follow q(label) of the same pass and are not differentiated; with
/// them cross-entropy climbs the expected number of slots accepted in a row, sum over j of
/// prod_{i<=j} q_i(label): kStreak as it stands, kDpace with every q_i smoothed to
/// (1 - alpha) q_i + alpha (arXiv 2605.18810).
enum class SlotWeights { kDecay, kDpace, kStreak };

struct LossTerm {
  LossKind kind = LossKind::kCrossEntropy;
  double weight = 1.0;
};

struct LossOptions {
  std::vector<LossTerm> terms = {{}};               // their weighted sum is the loss of a slot
  LabelSource labels = LabelSource::kTargetArgmax;  // of cross-entropy and of accuracy
  SlotWeights slot_weights = SlotWeights::kDecay;   // the other two are not decayed besides
  double gamma = 4.0;                               // slots per e-fold of the decay; <= 0: none
  double dpace_alpha = 0.5;                         // floor of a slot's survival in D-PACE

  bool needs_teacher() const;
  Json to_json() const;
};

std::string_view loss_name(LossKind kind);
/// "ce", "kl", "0.5*kl+0.5*tv". Error lists the known names.
std::vector<LossTerm> parse_loss(std::string_view text);
std::string_view slot_weights_name(SlotWeights kind);
/// "decay", "dpace", "streak". Error lists them.
SlotWeights parse_slot_weights(std::string_view name);
/// One line for headers: what is summed and by what it is divided.
std::string describe_loss(const LossOptions& options);

/// M trained slots.
struct LossRows {
  at::Tensor hidden_MD;   // f32, the drafter's rows after its own final norm
  at::Tensor label_M;     // int64 draft ids, all inside the draft vocabulary
  at::Tensor teacher_MD;  // f32, the target's rows after its final norm; soft losses only
  /// The target's head over the same ids in the same order, where the drafter has its own; null:
  /// both share one.
  const Vocabulary* teacher_head = nullptr;
};

/// No graph anywhere.
struct RowLosses {
  at::Tensor loss_M;        // f32
  at::Tensor grad_MD;       // f32, d loss / d hidden
  at::Tensor label_prob_M;  // f32, q(label)
  at::Tensor argmax_M;      // int64 draft ids
};
/// `vocabulary`: the drafter's head.
RowLosses row_losses(const Vocabulary& vocabulary, const LossOptions& options,
                     const LossRows& rows);

struct SlotWeighting {
  const block::BlockRule& rule;
  const LossOptions& options;
};
/// Weight of every slot [N * K] from block weights (0 = not in the loss) and q(label) per slot
/// (not read by the fixed decay).
std::vector<float> slot_weights(const SlotWeighting& how, const std::vector<float>& trained_NK,
                                const std::vector<float>& label_prob_NK);

}  // namespace dflash::train
