// Hidden states of the same tokens from two captures (dtype, device, kernels, another program): how
// far apart are they, and from which layer on? And: do features still say what the target says?
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "data/dataset.h"
#include "data/features.h"
#include "doctor/findings.h"
#include "draft/drafter.h"
#include "target/target.h"

namespace dflash::doctor {

/// One tap, over all rows that both captures have.
struct TapDifference {
  int64_t layer = 0;
  double relative = 0;   // |a - b| / |b|, over all rows
  double worst_row = 0;  // of the worst row
  int64_t worst_position = 0;
  double cosine = 0;  // mean over rows
  std::vector<double> cosine_by_place =
      {};  // mean over rows by position: 0-15, 16-63, 64-255, 256-
};

struct FeatureComparison {
  int64_t documents = 0, rows = 0;
  std::vector<TapDifference> taps;
  double argmax_agreement = 0;   // share of rows whose stored argmax is the same
  double bound = 0;              // of the taps' relative difference
  std::vector<double> score;     // expected acceptance with A and with B; empty without a drafter
  bool agrees() const;           // in every tap, every row and the argmax
  std::string sentence() const;  // from which layer on they part, or what else
  std::string to_text() const;
  Json to_json() const;
};

/// Errors: other taps or sizes, no document in common, other ids. With a drafter and its target
/// also the drafter's expected acceptance length under each.
FeatureComparison compare_features(const data::FeatureReader& a, const data::FeatureReader& b,
                                   const data::Dataset& dataset, const draft::Drafter* drafter,
                                   const target::Target* target);

/// Taps and teacher rows of up to `sample` documents computed again from the target. Where the
/// stored argmax is not the target's, it is compared with what known mistakes give: an earlier
/// block's output, the final norm missing or applied twice.
Findings check_features_of(const data::FeatureReader& features, const data::Dataset& dataset,
                           const target::Target& target, int64_t sample = 16);

}  // namespace dflash::doctor
