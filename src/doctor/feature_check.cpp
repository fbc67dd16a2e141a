#include "doctor/feature_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "decode/proposers.h"
#include "doctor/feature_rows.h"
#include "doctor/score.h"

namespace dflash::doctor {
namespace {

void check_comparable(const data::FeatureInfo& a, const data::FeatureInfo& b) {
  if (a.taps == b.taps && a.hidden_size == b.hidden_size) return;
  fail("features: expected the same taps and hidden size, got taps {} of {} and {} of {}",
       fmt::join(a.taps, ","), a.hidden_size, fmt::join(b.taps, ","), b.hidden_size);
}

double score_with(const draft::Drafter& drafter, const target::Target& target,
                  const data::Dataset& dataset, const std::vector<at::Tensor>& banks) {
  const train::Vocabulary vocabulary(decode::draft_head(target, drafter), drafter.compute());
  const Convention convention = declared_convention(drafter.spec());
  return score_convention(convention, drafter,
                          {.target = target,
                           .dataset = dataset,
                           .layers = drafter.spec().taps,
                           .banks = banks,
                           .vocabulary = vocabulary})
      .expected.mean();
}

}  // namespace

FeatureComparison compare_features(const data::FeatureReader& a, const data::FeatureReader& b,
                                   const data::Dataset& dataset, const draft::Drafter* drafter,
                                   const target::Target* target) {
  check_comparable(a.info(), b.info());
  const int64_t width = a.info().hidden_size;
  FeatureComparison result;
  result.bound = features_bound(is_f32(a.info()) && is_f32(b.info()));
  std::vector<FeatureSums> sums(a.info().taps.size());
  int64_t same = 0;
  data::Dataset common;
  std::vector<at::Tensor> banks_a, banks_b;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    if (!a.has(d) || !b.has(d)) continue;
    const auto ids = dataset.document_ids(d);
    const auto from_a = a.get(d, ids), from_b = b.get(d, ids);
    banks_a.push_back(feature_tensor(a, from_a));
    banks_b.push_back(feature_tensor(b, from_b));
    add_feature_rows(banks_a.back(), banks_b.back(), width, sums);
    for (size_t t = 0; t < ids.size(); ++t) same += from_a.argmax[t] == from_b.argmax[t] ? 1 : 0;
    result.rows += static_cast<int64_t>(ids.size());
    const auto mask = dataset.document_mask(d);
    common.add({{ids.begin(), ids.end()}, {mask.begin(), mask.end()}});
    if (!drafter) banks_a.clear(), banks_b.clear();
    ++result.documents;
  }
  if (result.documents == 0) fail("features: expected documents that both captures have, got none");
  for (size_t i = 0; i < sums.size(); ++i) result.taps.push_back(sums[i].finish(a.info().taps[i]));
  result.argmax_agreement = static_cast<double>(same) / static_cast<double>(result.rows);
  if (drafter && target) {
    result.score = {score_with(*drafter, *target, common, banks_a),
                    score_with(*drafter, *target, common, banks_b)};
  }
  return result;
}

bool FeatureComparison::agrees() const {
  const bool taps_agree = std::all_of(taps.begin(), taps.end(), [this](const TapDifference& tap) {
    return tap_fault(tap, bound).empty();
  });
  return taps_agree && argmax_agreement >= kSameArgmax;
}

std::string FeatureComparison::sentence() const {
  for (const TapDifference& tap : taps) {
    const std::string fault = tap_fault(tap, bound);
    if (fault.empty()) continue;
    return fmt::format("they part from the tap after block {} on: {}", tap.layer, fault);
  }
  if (argmax_agreement < kSameArgmax) {
    return "they agree in every tap, but not in the stored argmax: teacher rows of one are wrong";
  }
  return "they agree in every tap and in the argmax";
}

std::string FeatureComparison::to_text() const {
  std::string text = fmt::format("{} documents, {} rows\n{:<16} {:>10} {:>10} {:>9}  {}\n",
                                 documents, rows, "tap after block", "|a-b|/|b|", "worst row",
                                 "cosine", "cosine at positions 0-, 16-, 64-, 256-");
  for (const TapDifference& tap : taps) {
    text += fmt::format("{:<16} {:>10.2e} {:>10.2e} {:>9.6f}  {:.6f}\n", tap.layer, tap.relative,
                        tap.worst_row, tap.cosine, fmt::join(tap.cosine_by_place, "  "));
  }
  text += fmt::format("argmax of the target's head agrees in {:.2f} % of rows\n",
                      100 * argmax_agreement);
  if (score.size() == 2) {
    text += fmt::format("expected acceptance of the drafter: {:.3f} with A, {:.3f} with B\n",
                        score[0], score[1]);
  }
  return text + sentence() + "\n";
}

Json FeatureComparison::to_json() const {
  Json json = {{"documents", documents},
               {"rows", rows},
               {"argmax_agreement", argmax_agreement},
               {"sentence", sentence()}};
  for (const TapDifference& tap : taps) {
    json["taps"].push_back({{"layer", tap.layer},
                            {"relative", tap.relative},
                            {"worst_row", tap.worst_row},
                            {"cosine", tap.cosine},
                            {"cosine_by_position", tap.cosine_by_place}});
  }
  if (!score.empty()) json["expected_acceptance"] = score;
  return json;
}

}  // namespace dflash::doctor
