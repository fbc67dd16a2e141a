// Stored features against the target itself.
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "doctor/evidence.h"
#include "doctor/feature_check.h"
#include "doctor/feature_rows.h"
#include "nn/finite.h"

namespace dflash::doctor {
namespace {

/// A way to make teacher rows, and how often its argmax is the stored one.
struct Teacher {
  std::string words;
  int64_t layer = 0;
  int norms = 1;
  int64_t same = 0;
};

std::vector<Teacher> teachers_of(const target::Target& target) {
  const int64_t last = target.config().num_layers - 1;
  std::vector<Teacher> teachers = {
      {"the last block's output, normed once", last, 1},
      {"the last block's output without the final norm", last, 0},
      {"the last block's output, normed twice", last, 2},
  };
  for (int64_t layer = last - 1; layer >= std::max<int64_t>(0, last - 4); --layer) {
    teachers.push_back(
        {fmt::format("the output of block {} of {}, not the last", layer, last + 1), layer, 1});
  }
  return teachers;
}

class Truth {
 public:
  Truth(const data::FeatureReader& features, const target::Target& target)
      : features_(features), target_(target), teachers_(teachers_of(target)) {
    layers_ = features.info().taps;
    exact_ = is_f32(features.info()) && target.compute() == nn::Compute::kF32;
    features.check_vocabulary(target.config().vocab_size);
    sums_.resize(layers_.size());
    for (const Teacher& teacher : teachers_) {
      if (column_of(teacher.layer) == layers_.size()) layers_.push_back(teacher.layer);
    }
  }

  void add(const data::Dataset& dataset, int64_t document) {
    const auto ids = dataset.document_ids(document);
    data::Dataset one;
    one.add({{ids.begin(), ids.end()}, std::vector<uint8_t>(ids.size(), 0)});
    const int64_t width = features_.info().hidden_size;
    const at::Tensor own_TF = hidden_states(target_, one, layers_).front();
    const auto stored = features_.get(document, ids);
    const auto taps = static_cast<int64_t>(sums_.size());
    add_feature_rows(feature_tensor(features_, stored),
                     own_TF.narrow(1, 0, taps * width).contiguous(), width, sums_);
    for (Teacher& teacher : teachers_) {
      const auto column = static_cast<int64_t>(column_of(teacher.layer));
      at::Tensor row_TD = own_TF.narrow(1, column * width, width).contiguous();
      for (int n = 0; n < teacher.norms; ++n) row_TD = target_.final_norm(row_TD);
      const at::Tensor argmax = target_.head().argmax(row_TD);
      for (size_t t = 0; t < ids.size(); ++t) {
        teacher.same += argmax.const_data_ptr<int64_t>()[t] == stored.argmax[t] ? 1 : 0;
      }
    }
    rows_ += static_cast<int64_t>(ids.size());
    ++documents_;
  }

  Findings finish() const {
    Findings findings;
    for (size_t i = 0; i < sums_.size(); ++i) {
      const TapDifference tap = sums_[i].finish(layers_[i]);
      const std::string subject = fmt::format("tap after block {}", tap.layer);
      const std::string text = fmt::format(
          "stored rows differ from the target's by {:.2e} (worst row {:.2e}), {} documents of {}",
          tap.relative, tap.worst_row, documents_, all_documents_);
      const std::string fault = tap_fault(tap, features_bound(exact_));
      fault.empty() ? findings.ok(subject, text) : findings.wrong(subject, text + ": " + fault);
    }
    judge_values(findings);
    judge_teacher(findings);
    return findings;
  }

  /// Every document's stored values; only a sample is computed again.
  void look_through(const data::Dataset& dataset, int64_t document) {
    ++all_documents_;
    const auto stored = features_.get(document, dataset.document_ids(document));
    if (nn::is_finite(feature_tensor(features_, stored).contiguous())) return;
    if (not_finite_++ == 0) first_not_finite_ = document;
  }

 private:
  size_t column_of(int64_t layer) const {
    return static_cast<size_t>(std::find(layers_.begin(), layers_.end(), layer) - layers_.begin());
  }
  double share(const Teacher& teacher) const {
    return static_cast<double>(teacher.same) / static_cast<double>(std::max<int64_t>(1, rows_));
  }

  void judge_values(Findings& findings) const {
    if (not_finite_ == 0) {
      findings.ok("stored values",
                  fmt::format("no NaN or infinity in {} documents", all_documents_));
    } else {
      findings.wrong("stored values",
                     fmt::format("NaN or infinity in {} of {} documents, the first is {}",
                                 not_finite_, all_documents_, first_not_finite_));
    }
  }

  void judge_teacher(Findings& findings) const {
    const Teacher& right = teachers_.front();
    std::string text = fmt::format("stored argmax equals the target's in {:.2f} % of {} rows",
                                   100 * share(right), rows_);
    if (share(right) >= kSameArgmax) {
      findings.ok("teacher rows", text);
      return;
    }
    for (const Teacher& other : teachers_) {
      if (share(other) >= kSameArgmax) text += "; it is that of " + other.words;
    }
    findings.wrong("teacher rows", text);
  }

  const data::FeatureReader& features_;
  const target::Target& target_;
  std::vector<Teacher> teachers_;
  std::vector<int64_t> layers_;  // the taps, then what teachers need beside them; each once
  std::vector<FeatureSums> sums_;
  bool exact_ = false;  // both sides computed in f32
  int64_t rows_ = 0, documents_ = 0, all_documents_ = 0;
  int64_t not_finite_ = 0, first_not_finite_ = -1;
};

}  // namespace

Findings check_features_of(const data::FeatureReader& features, const data::Dataset& dataset,
                           const target::Target& target, int64_t sample) {
  const c10::NoGradGuard no_grad;
  Truth truth(features, target);
  const int64_t step = std::max<int64_t>(1, dataset.num_documents() / std::max<int64_t>(1, sample));
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    if (!features.has(d)) continue;
    truth.look_through(dataset, d);
    if (d % step == 0) truth.add(dataset, d);
  }
  return truth.finish();
}

}  // namespace dflash::doctor
