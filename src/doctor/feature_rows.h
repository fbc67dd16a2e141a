// Rows of stored features as tensors, and the sums that compare two sets of them. Internal to
// doctor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/features.h"
#include "doctor/feature_check.h"

namespace dflash::doctor {

inline constexpr int64_t kPlaces[] = {0, 16, 64, 256};  // first position of each bucket
inline constexpr double kFeaturesApart = 0.05;          // relative difference that counts as parted
inline constexpr double kExactFeaturesApart = 1e-3;     // where both were computed in f32
inline constexpr double kRowsApart = 0.5;    // of a single row: it is another's, or damaged
inline constexpr double kSameArgmax = 0.97;  // near-ties flip between kernels, no more

/// How far two sets of features, or features and target, may be apart.
double features_bound(bool both_f32);
/// Computed and stored in f32, by what features.json says.
bool is_f32(const data::FeatureInfo& info);
/// "" or what is wrong with the tap.
std::string tap_fault(const TapDifference& tap, double bound);

/// f32 copy of a document's taps, [T, F].
at::Tensor feature_tensor(const data::FeatureReader& reader,
                          const data::DocumentFeatures& features);

/// Sums over rows of one tap.
class FeatureSums {
 public:
  void add(const float* a, const float* b, int64_t width, int64_t position);
  TapDifference finish(int64_t layer) const;

 private:
  double difference_ = 0, size_ = 0, worst_ = 0, cosine_ = 0;
  int64_t rows_ = 0, worst_position_ = 0;
  double place_cosine_[std::size(kPlaces)] = {};
  int64_t place_rows_[std::size(kPlaces)] = {};
};

/// Rows of one document, contiguous f32 [T, taps * width]; sums[i] is of tap i.
void add_feature_rows(const at::Tensor& a_TF, const at::Tensor& b_TF, int64_t width,
                      std::vector<FeatureSums>& sums);

}  // namespace dflash::doctor
