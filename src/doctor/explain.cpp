#include "doctor/explain.h"

#include <algorithm>
#include <numeric>

#include "base/acceptance.h"
#include "base/error.h"
#include "decode/proposers.h"

namespace dflash::doctor {
namespace {

constexpr uint64_t kSeed = 20260206;  // of the bootstrap: the same resamples in every run

/// The declared convention and its deviations, with what they need of the target.
struct Study {
  Convention declared;
  std::vector<Deviation> deviations = {};
  std::vector<Convention> conventions = {};  // [0] is the declared one
  data::Dataset dataset = {};
  std::vector<int64_t> layers = {};
  std::vector<at::Tensor> banks = {};
};

int64_t longest_document(const data::Dataset& dataset) {
  int64_t longest = 0;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    longest = std::max(longest, static_cast<int64_t>(dataset.document_ids(d).size()));
  }
  return longest;
}

Study prepare_study(const target::Target& target, const draft::Drafter& drafter,
                    const std::vector<std::vector<int64_t>>& prompts,
                    const ExplainOptions& options) {
  Study study{.declared = declared_convention(drafter.spec())};
  study.dataset = own_answers(target, prompts, options.evidence);
  study.deviations = deviations_of(study.declared, target, longest_document(study.dataset));
  study.conventions.push_back(study.declared);
  for (const Deviation& deviation : study.deviations) {
    study.conventions.push_back(deviate(study.declared, deviation));
  }
  study.layers = layers_of(study.conventions);
  study.banks = hidden_states(target, study.dataset, study.layers);
  return study;
}

std::vector<Score> score_all(const target::Target& target, const draft::Drafter& drafter,
                             const Study& study, const ExplainOptions& options) {
  const train::Vocabulary vocabulary(decode::draft_head(target, drafter.spec()), drafter.compute());
  const ScoreInputs inputs{.target = target,
                           .dataset = study.dataset,
                           .layers = study.layers,
                           .banks = study.banks,
                           .vocabulary = vocabulary,
                           .anchors_per_document = options.anchors_per_document};
  std::vector<Score> scores;
  for (const Convention& convention : study.conventions) {
    if (options.should_stop && options.should_stop()) fail("explain: stopped before it was done");
    scores.push_back(score_convention(convention, drafter, inputs));
    if (options.on_arm) {
      options.on_arm(static_cast<int64_t>(scores.size()),
                     static_cast<int64_t>(study.conventions.size()));
    }
  }
  return scores;
}

double decoded_tau(const target::Target& target, const draft::Drafter& drafter,
                   const Convention& convention, const std::vector<std::vector<int64_t>>& prompts,
                   const EvidenceOptions& evidence) {
  std::vector<decode::Request> requests;
  for (const auto& prompt : prompts) {
    requests.push_back({.prompt = prompt,
                        .max_new_tokens = evidence.max_new_tokens,
                        .stop_ids = evidence.stop_ids});
  }
  const auto proposer = proposer_under(convention, drafter, target);
  AcceptanceCounts counts;
  for (const auto& result :
       decode::generate(target, proposer.get(), requests, {.max_batch = evidence.batch}).results) {
    counts.merge(result.counts);
  }
  return counts.tau();
}

/// Order of the deviations by score, the best first.
std::vector<size_t> by_score(const std::vector<Score>& scores) {
  std::vector<size_t> order(scores.size() - 1);
  std::iota(order.begin(), order.end(), size_t{1});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return scores[a].expected.mean() > scores[b].expected.mean();
  });
  return order;
}

ArmResult describe_arm(const Study& study, const std::vector<Score>& scores, size_t i,
                       const ExplainOptions& options) {
  ArmResult arm{.name = i == 0 ? "declared" : study.deviations[i - 1].name,
                .words = i == 0 ? "as the drafter's config says" : study.deviations[i - 1].words,
                .score = scores[i].expected.mean(),
                .greedy = scores[i].greedy.mean(),
                .servable = can_be_served(study.conventions[i])};
  if (i > 0) {
    arm.gain = compare_paired(scores[i].expected, scores[0].expected, options.resamples, kSeed);
  }
  return arm;
}

void judge(Explanation& result, const std::vector<Score>& scores, const std::vector<size_t>& order,
           const ExplainOptions& options) {
  std::vector<double> p;
  for (const ArmResult& arm : result.arms) p.push_back(arm.gain.p);
  const std::vector<double> adjusted = holm(p);
  for (size_t a = 0; a < result.arms.size(); ++a) result.arms[a].p_holm = adjusted[a];
  const ArmResult& best = result.arms.front();
  if (best.p_holm > options.alpha || best.gain.difference < options.min_gain) return;
  result.verdict = 0;
  for (size_t a = 1; a < result.arms.size(); ++a) {
    const Comparison lead = compare_paired(scores[order[0]].expected, scores[order[a]].expected,
                                           options.resamples, kSeed);
    if (lead.low <= 0) result.not_told_apart.push_back(a);
  }
}

}  // namespace

Explanation explain(const target::Target& target, const draft::Drafter& drafter,
                    const std::vector<std::vector<int64_t>>& prompts,
                    const ExplainOptions& options) {
  const Study study = prepare_study(target, drafter, prompts, options);
  const std::vector<Score> scores = score_all(target, drafter, study, options);
  const auto& counts = scores[0].expected.count_P;
  Explanation result{.prompts = study.dataset.num_documents(),
                     .anchors = std::accumulate(counts.begin(), counts.end(), int64_t{0}),
                     .declared = describe_arm(study, scores, 0, options)};
  if (result.anchors == 0) {
    fail("explain: expected answers of two tokens or more, got none in {} prompts", result.prompts);
  }
  const std::vector<size_t> order = by_score(scores);
  for (const size_t i : order) result.arms.push_back(describe_arm(study, scores, i, options));
  judge(result, scores, order, options);
  if (options.confirm <= 0) return result;
  result.declared.tau = decoded_tau(target, drafter, study.declared, prompts, options.evidence);
  int64_t confirmed = 0;
  for (size_t a = 0; a < order.size() && confirmed < options.confirm; ++a) {
    if (!result.arms[a].servable) continue;
    result.arms[a].tau =
        decoded_tau(target, drafter, study.conventions[order[a]], prompts, options.evidence);
    ++confirmed;
  }
  return result;
}

}  // namespace dflash::doctor
