#include "doctor/explain.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/acceptance.h"
#include "base/error.h"
#include "decode/proposers.h"

namespace dflash::doctor {
namespace {

constexpr uint64_t kSeed = 20260206;  // of the bootstrap: the same resamples in every run

using Prompts = std::vector<std::vector<int64_t>>;

/// The declared convention ([0] of the candidates), its deviations on the same texts, and the
/// declared one on other texts.
struct Candidate {
  std::string name, words;
  Convention convention;
  const Prompts& prompts;
  bool other_texts = false;
  Score score = {};
};

int64_t longest_document(const data::Dataset& dataset) {
  int64_t longest = 0;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    longest = std::max(longest, static_cast<int64_t>(dataset.document_ids(d).size()));
  }
  return longest;
}

bool has_anchor(const data::Dataset& dataset) {
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    const auto mask = dataset.document_mask(d);
    if (std::count(mask.begin(), mask.end(), uint8_t{1}) >= 2) return true;
  }
  return false;
}

std::vector<Candidate> list_candidates(const target::Target& target, const draft::Drafter& drafter,
                                       const Prompts& prompts, int64_t longest,
                                       const ExplainOptions& options) {
  const Convention declared = declared_convention(drafter.spec());
  std::vector<Candidate> candidates = {
      {"declared", "as the drafter's config says", declared, prompts}};
  for (const Deviation& deviation : deviations_of(declared, target, longest, options.mask_ids)) {
    candidates.push_back({deviation.name, deviation.words, deviate(declared, deviation), prompts});
  }
  for (const PromptArm& arm : options.prompt_arms) {
    DF_ASSERT(arm.prompts.size() == prompts.size(), "{}: {} questions of {}", arm.name,
              arm.prompts.size(), prompts.size());
    candidates.push_back({arm.name, arm.words, declared, arm.prompts, true});
  }
  return candidates;
}

/// Scores candidates that share their texts.
class Scorer {
 public:
  Scorer(const target::Target& target, const draft::Drafter& drafter, const ExplainOptions& options)
      : target_(target),
        drafter_(drafter),
        options_(options),
        vocabulary_(decode::draft_head(target, drafter), drafter.compute()) {}

  void score(std::span<Candidate> candidates, const data::Dataset& dataset, int64_t total) {
    std::vector<Convention> conventions;
    for (const Candidate& candidate : candidates) conventions.push_back(candidate.convention);
    const std::vector<int64_t> layers = layers_of(conventions);
    const std::vector<at::Tensor> banks = hidden_states(target_, dataset, layers);
    const ScoreInputs inputs{.target = target_,
                             .dataset = dataset,
                             .layers = layers,
                             .banks = banks,
                             .vocabulary = vocabulary_,
                             .anchors_per_document = options_.anchors_per_document};
    for (Candidate& candidate : candidates) {
      if (options_.should_stop && options_.should_stop()) {
        fail("doctor: stopped before it was done");
      }
      candidate.score = score_convention(candidate.convention, drafter_, inputs);
      if (options_.on_arm) options_.on_arm(++done_, total);
    }
  }

 private:
  const target::Target& target_;
  const draft::Drafter& drafter_;
  const ExplainOptions& options_;
  train::Vocabulary vocabulary_;
  int64_t done_ = 0;
};

std::vector<Candidate> score_all(const target::Target& target, const draft::Drafter& drafter,
                                 const Prompts& prompts, const ExplainOptions& options) {
  const data::Dataset dataset = own_answers(target, prompts, options.evidence);
  if (!has_anchor(dataset)) {
    fail("explain: expected answers of two tokens or more, got none in {} prompts", prompts.size());
  }
  auto candidates = list_candidates(target, drafter, prompts, longest_document(dataset), options);
  const auto total = static_cast<int64_t>(candidates.size());
  const size_t same_texts = candidates.size() - options.prompt_arms.size();
  Scorer scorer(target, drafter, options);
  const std::span<Candidate> all(candidates);
  scorer.score(all.first(same_texts), dataset, total);
  for (Candidate& candidate : all.subspan(same_texts)) {
    scorer.score({&candidate, 1}, own_answers(target, candidate.prompts, options.evidence), total);
  }
  return candidates;
}

double decoded_tau(const target::Target& target, const draft::Drafter& drafter,
                   const Candidate& candidate, const EvidenceOptions& evidence) {
  const auto proposer = proposer_under(candidate.convention, drafter, target);
  AcceptanceCounts counts;
  for (const auto& result : decode_prompts(target, proposer.get(), candidate.prompts, evidence)) {
    counts.merge(result.counts);
  }
  return counts.tau();
}

/// Order of the deviations by score, the best first.
std::vector<size_t> by_score(const std::vector<Candidate>& candidates) {
  std::vector<size_t> order(candidates.size() - 1);
  std::iota(order.begin(), order.end(), size_t{1});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return candidates[a].score.expected.mean() > candidates[b].score.expected.mean();
  });
  return order;
}

ArmResult describe_arm(const Candidate& candidate) {
  return {.name = candidate.name,
          .words = candidate.words,
          .score = candidate.score.expected.mean(),
          .greedy = candidate.score.greedy.mean(),
          .servable = can_be_served(candidate.convention),
          .other_texts = candidate.other_texts};
}

/// The best deviation that is better than chance allows, and better by enough to matter.
void judge(Explanation& result, const std::vector<Candidate>& candidates,
           const std::vector<size_t>& order, const ExplainOptions& options) {
  std::vector<double> p;
  for (const ArmResult& arm : result.arms) p.push_back(arm.gain.p);
  const std::vector<double> adjusted = holm(p);
  for (size_t a = 0; a < result.arms.size(); ++a) {
    ArmResult& arm = result.arms[a];
    arm.p_holm = adjusted[a];
    const double needed =
        arm.other_texts
            ? std::max(options.min_gain, options.min_gain_of_texts * result.declared.score)
            : options.min_gain;
    if (result.verdict || arm.p_holm > options.alpha || arm.gain.difference < needed) continue;
    result.verdict = a;
  }
  if (!result.verdict) return;
  const PromptScores& best = candidates[order[*result.verdict]].score.expected;
  for (size_t a = 0; a < result.arms.size(); ++a) {
    if (a == *result.verdict) continue;
    const Comparison lead =
        compare_paired(best, candidates[order[a]].score.expected, options.resamples, kSeed);
    // A lead that is certain but too small to matter is no reason to name one and not the other.
    const bool clear = lead.low > 0 && lead.difference >= options.min_gain;
    if (!clear) result.not_told_apart.push_back(a);
  }
}

/// The verdict, and the best by score, as far as they can be served.
std::vector<size_t> arms_to_confirm(const Explanation& result, int64_t count) {
  std::vector<size_t> arms;
  const auto take = [&](size_t a) {
    const bool known = std::find(arms.begin(), arms.end(), a) != arms.end();
    const bool full = static_cast<int64_t>(arms.size()) >= count;
    if (result.arms[a].servable && !known && !full) arms.push_back(a);
  };
  if (result.verdict) take(*result.verdict);
  for (size_t a = 0; a < result.arms.size(); ++a) take(a);
  return arms;
}

}  // namespace

Explanation explain(const target::Target& target, const draft::Drafter& drafter,
                    const std::vector<std::vector<int64_t>>& prompts,
                    const ExplainOptions& options) {
  const std::vector<Candidate> candidates = score_all(target, drafter, prompts, options);
  const auto& declared = candidates[0].score;
  const auto& counts = declared.expected.count_P;
  Explanation result{.prompts = static_cast<int64_t>(prompts.size()),
                     .anchors = std::accumulate(counts.begin(), counts.end(), int64_t{0}),
                     .declared = describe_arm(candidates[0])};
  if (!declared.finite) {
    fail(
        "explain: the drafter's logits are infinite or NaN under its own convention\n"
        "  hint: its training diverged: take an earlier checkpoint");
  }
  const std::vector<size_t> order = by_score(candidates);
  for (const size_t i : order) {
    result.arms.push_back(describe_arm(candidates[i]));
    result.arms.back().gain =
        compare_paired(candidates[i].score.expected, declared.expected, options.resamples, kSeed);
  }
  judge(result, candidates, order, options);
  const auto asked = std::count_if(counts.begin(), counts.end(), [](int64_t n) { return n > 0; });
  const int64_t needed = prompts_needed(result.arms.size(), options.alpha);
  if (asked < needed) result.prompts_needed = needed;
  if (options.confirm <= 0) return result;
  result.declared.tau = decoded_tau(target, drafter, candidates[0], options.evidence);
  for (const size_t a : arms_to_confirm(result, options.confirm)) {
    result.arms[a].tau = decoded_tau(target, drafter, candidates[order[a]], options.evidence);
  }
  return result;
}

}  // namespace dflash::doctor
