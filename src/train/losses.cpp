#include "train/losses.h"

#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "nn/shapes.h"
#include "nn/vector_math.h"

namespace dflash::train {
namespace {

struct NamedLoss {
  LossKind kind;
  std::string_view name;
};
constexpr std::array<NamedLoss, 7> kNames = {{{LossKind::kCrossEntropy, "ce"},
                                              {LossKind::kKl, "kl"},
                                              {LossKind::kReverseKl, "rkl"},
                                              {LossKind::kJsd, "jsd"},
                                              {LossKind::kTv, "tv"},
                                              {LossKind::kNla, "nla"},
                                              {LossKind::kLkHybrid, "lk"}}};
struct NamedWeights {
  SlotWeights kind;
  std::string_view name;
};
constexpr std::array<NamedWeights, 3> kWeightNames = {{{SlotWeights::kDecay, "decay"},
                                                       {SlotWeights::kDpace, "dpace"},
                                                       {SlotWeights::kStreak, "streak"}}};
constexpr int64_t kSoftChunk = 128;  // rows of two whole distributions at a time
constexpr double kMinOverlap = 1e-5;

/// Whether mean rows of p and q are all that the loss needs (no logits at all). Those of KL are
/// means of one head's rows.
bool is_linear(LossKind kind, const LossRows& rows) {
  return kind == LossKind::kCrossEntropy || (kind == LossKind::kKl && !rows.teacher_head);
}

at::Tensor dot_rows(const at::Tensor& a_MD, const at::Tensor& b_MD) {
  return (a_MD * b_MD).sum(-1);
}

/// Adds cross-entropy and KL, which follow from the two means.
void add_linear(const Vocabulary& vocabulary, const LossTerm& term, const LossRows& rows,
                const VocabularyMean& q, RowLosses& out) {
  if (term.kind == LossKind::kCrossEntropy) {
    const at::Tensor label_MD = vocabulary.rows(rows.label_M);
    out.loss_M.add_(q.log_sum_M - dot_rows(rows.hidden_MD, label_MD), term.weight);
    out.grad_MD.add_(q.mean_MD - label_MD, term.weight);
    return;
  }
  // sum p log p = mean_p . t - logsum_t and sum p log q = mean_p . x - logsum_x.
  const VocabularyMean p = vocabulary.mean(rows.teacher_MD);
  const at::Tensor log_p = dot_rows(p.mean_MD, rows.teacher_MD) - p.log_sum_M;
  const at::Tensor log_q = dot_rows(p.mean_MD, rows.hidden_MD) - q.log_sum_M;
  out.loss_M.add_(log_p - log_q, term.weight);
  out.grad_MD.add_(q.mean_MD - p.mean_MD, term.weight);
}

/// Rows of two distributions: logs, values, and their overlap sum min(p, q).
struct TwoRows {
  at::Tensor log_p, log_q, p, q, overlap_M1;
};

/// q * (g - sum q g): the gradient of f(q) with respect to logits, g = df/dq.
at::Tensor through_softmax(const at::Tensor& q, const at::Tensor& g) {
  return q * (g - (q * g).sum(-1, true));
}

/// Loss [M] and gradient with respect to q's logits [M, V] of one soft term.
std::pair<at::Tensor, at::Tensor> soft_term(LossKind kind, const TwoRows& r) {
  const auto total_variation = [&] {
    const at::Tensor g = at::where(r.q < r.p, -1.0, 0.0).to(at::kFloat);
    return std::pair(1.0 - r.overlap_M1.squeeze(-1), through_softmax(r.q, g));
  };
  switch (kind) {
    case LossKind::kKl:
      return {(r.p * (r.log_p - r.log_q)).sum(-1), r.q - r.p};
    case LossKind::kReverseKl: {
      const at::Tensor g = r.log_q - r.log_p;
      return {(r.q * g).sum(-1), through_softmax(r.q, g)};
    }
    case LossKind::kJsd: {
      const at::Tensor log_m = at::logaddexp(r.log_p, r.log_q) - std::log(2.0);
      const at::Tensor g = (r.log_q - log_m) * 0.5;
      return {((r.p * (r.log_p - log_m)) * 0.5 + r.q * g).sum(-1), through_softmax(r.q, g)};
    }
    case LossKind::kTv:
      return total_variation();
    case LossKind::kNla: {
      const at::Tensor bounded = r.overlap_M1.clamp_min(kMinOverlap);
      const at::Tensor alive = (r.overlap_M1 > kMinOverlap).to(at::kFloat);
      return {-bounded.log().squeeze(-1), total_variation().second * (alive / bounded)};
    }
    case LossKind::kLkHybrid: {
      const at::Tensor lambda = (r.overlap_M1 * -3.0).exp();
      const auto [tv, grad_tv] = total_variation();
      const at::Tensor kl = (r.p * (r.log_p - r.log_q)).sum(-1);
      const at::Tensor l = lambda.squeeze(-1);
      return {l * kl + (1.0 - l) * tv, lambda * (r.q - r.p) + (1.0 - lambda) * grad_tv};
    }
    default:
      break;
  }
  assert_failed("soft kind", __FILE__, __LINE__, std::string(loss_name(kind)));
}

/// Adds the losses that need whole rows, chunk by chunk.
void add_soft(const Vocabulary& vocabulary, const LossOptions& options, const LossRows& rows,
              RowLosses& out) {
  const Vocabulary& teacher = rows.teacher_head ? *rows.teacher_head : vocabulary;
  for (int64_t first = 0; first < rows.hidden_MD.size(0); first += kSoftChunk) {
    const int64_t count = std::min(kSoftChunk, rows.hidden_MD.size(0) - first);
    TwoRows r;
    r.log_q = at::log_softmax(vocabulary.logits(rows.hidden_MD.narrow(0, first, count)), -1);
    r.log_p = at::log_softmax(teacher.logits(rows.teacher_MD.narrow(0, first, count)), -1);
    r.q = r.log_q.exp();
    r.p = r.log_p.exp();
    r.overlap_M1 = at::minimum(r.p, r.q).sum(-1, true);
    at::Tensor grad_MV;
    for (const LossTerm& term : options.terms) {
      if (is_linear(term.kind, rows)) continue;
      const auto [loss, grad] = soft_term(term.kind, r);
      out.loss_M.narrow(0, first, count).add_(loss, term.weight);
      grad_MV = grad_MV.defined() ? grad_MV.add_(grad, term.weight) : grad * term.weight;
    }
    out.grad_MD.narrow(0, first, count).add_(vocabulary.back(grad_MV));
  }
}

}  // namespace

bool LossOptions::needs_teacher() const {
  return std::any_of(terms.begin(), terms.end(),
                     [](const LossTerm& t) { return t.kind != LossKind::kCrossEntropy; });
}

std::string_view loss_name(LossKind kind) {
  for (const NamedLoss& named : kNames) {
    if (named.kind == kind) return named.name;
  }
  return "?";
}

std::vector<LossTerm> parse_loss(std::string_view text) {
  std::vector<LossTerm> terms;
  std::string rest(text);
  for (size_t begin = 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find('+', begin), rest.size());
    std::string part = rest.substr(begin, end - begin);
    begin = end + 1;
    LossTerm term;
    if (const size_t star = part.find('*'); star != std::string::npos) {
      char* stop = nullptr;
      term.weight = std::strtod(part.c_str(), &stop);
      if (stop != part.c_str() + star || !(term.weight > 0)) {
        fail("loss: {}: expected a positive weight before '*'", part);
      }
      part = part.substr(star + 1);
    }
    const auto found = std::find_if(kNames.begin(), kNames.end(),
                                    [&](const NamedLoss& n) { return n.name == part; });
    if (found == kNames.end()) {
      fail("loss: {}: expected ce, kl, rkl, jsd, tv, nla, lk or a sum like 0.5*kl+0.5*tv", part);
    }
    term.kind = found->kind;
    if (std::any_of(terms.begin(), terms.end(),
                    [&](const LossTerm& other) { return other.kind == term.kind; })) {
      fail("loss: {}: expected each term once, got {} twice", text, part);
    }
    terms.push_back(term);
  }
  return terms;
}

std::string_view slot_weights_name(SlotWeights kind) {
  for (const NamedWeights& named : kWeightNames) {
    if (named.kind == kind) return named.name;
  }
  return "?";
}

SlotWeights parse_slot_weights(std::string_view name) {
  for (const NamedWeights& named : kWeightNames) {
    if (named.name == name) return named.kind;
  }
  fail("slot weights: {}: expected decay, dpace or streak", name);
}

Json LossOptions::to_json() const {
  Json parts = Json::array();
  for (const LossTerm& term : terms) {
    parts.push_back({{"loss", loss_name(term.kind)}, {"weight", term.weight}});
  }
  return {{"terms", parts},
          {"labels", labels == LabelSource::kTargetArgmax ? "argmax" : "token"},
          {"slot_weights", slot_weights_name(slot_weights)},
          {"gamma", gamma},
          {"dpace_alpha", dpace_alpha},
          {"normalised_by", "sum of weights of the step"}};
}

std::string describe_loss(const LossOptions& options) {
  std::string sum;
  for (const LossTerm& term : options.terms) {
    sum += fmt::format("{}{:g} {}", sum.empty() ? "" : " + ", term.weight, loss_name(term.kind));
  }
  const std::string weights =
      options.slot_weights == SlotWeights::kDpace
          ? fmt::format("D-PACE weights, alpha {:g}", options.dpace_alpha)
      : options.slot_weights == SlotWeights::kStreak ? std::string("weights of the expected streak")
      : options.gamma > 0 ? fmt::format("slot weight exp(-(k-1)/{:g})", options.gamma)
                          : std::string("equal slot weights");
  return fmt::format(
      "{} on the {}; {}; divided by the step's sum of weights", sum,
      options.labels == LabelSource::kTargetArgmax ? "target's argmax" : "data token", weights);
}

RowLosses row_losses(const Vocabulary& vocabulary, const LossOptions& options,
                     const LossRows& given) {
  const c10::NoGradGuard guard;
  nn::settle_vector_math();
  const int64_t count = given.hidden_MD.size(0), width = vocabulary.hidden_size();
  nn::expect_shape(given.hidden_MD, {-1, width}, "hidden rows");
  nn::expect_shape(given.label_M, {count}, "labels");
  const Vocabulary& teacher = given.teacher_head ? *given.teacher_head : vocabulary;
  DF_ASSERT(teacher.size() == vocabulary.size(), "{} and {} ids", teacher.size(),
            vocabulary.size());
  if (options.needs_teacher()) {
    nn::expect_shape(given.teacher_MD, {count, teacher.hidden_size()}, "teacher rows");
  }
  LossRows rows = given;  // rounded once, so that every product below sees the same rows
  rows.hidden_MD = vocabulary.rounded(given.hidden_MD);
  if (options.needs_teacher()) rows.teacher_MD = teacher.rounded(given.teacher_MD);
  const VocabularyMean q = vocabulary.mean(rows.hidden_MD);
  RowLosses out;
  out.argmax_M = q.argmax_M;
  const at::Tensor label_logit = dot_rows(rows.hidden_MD, vocabulary.rows(rows.label_M));
  out.label_prob_M = (label_logit - q.log_sum_M).exp_();
  out.loss_M = at::zeros({count}, at::kFloat);
  out.grad_MD = at::zeros({count, width}, at::kFloat);
  bool needs_rows = false;
  for (const LossTerm& term : options.terms) {
    if (is_linear(term.kind, rows)) add_linear(vocabulary, term, rows, q, out);
    needs_rows = needs_rows || !is_linear(term.kind, rows);
  }
  if (needs_rows) add_soft(vocabulary, options, rows, out);
  return out;
}

std::vector<float> slot_weights(const SlotWeighting& how, const std::vector<float>& trained_NK,
                                const std::vector<float>& label_prob_NK) {
  const auto slots = static_cast<size_t>(how.rule.block_size);
  DF_ASSERT(trained_NK.size() % slots == 0, "slots={}", trained_NK.size());
  std::vector<float> out(trained_NK.size());
  if (how.options.slot_weights == SlotWeights::kDecay) {
    const std::vector<float> decay = block::slot_decay(how.rule, how.options.gamma);
    for (size_t i = 0; i < out.size(); ++i) out[i] = trained_NK[i] * decay[i % slots];
    return out;
  }
  DF_ASSERT(label_prob_NK.size() == out.size(), "probs={}", label_prob_NK.size());
  const bool streak = how.options.slot_weights == SlotWeights::kStreak;
  const double alpha = streak ? 0.0 : how.options.dpace_alpha;
  for (size_t begin = 0; begin < out.size(); begin += slots) {
    // survival_k = prod over i <= k; weight_k = sum over i >= k of survival_i * trained_i.
    std::vector<double> survival(slots, 1.0);
    double running = 1.0;
    for (size_t k = 0; k < slots; ++k) {
      if (trained_NK[begin + k] > 0) running *= (1.0 - alpha) * label_prob_NK[begin + k] + alpha;
      survival[k] = running;
    }
    double tail = 0.0;
    for (size_t k = slots; k-- > 0;) {
      if (trained_NK[begin + k] > 0) tail += survival[k];
      out[begin + k] = trained_NK[begin + k] > 0 ? static_cast<float>(tail) : 0.0F;
    }
  }
  return out;
}

}  // namespace dflash::train
