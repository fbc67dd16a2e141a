// Rows of stored features as tensors, and the sums that compare two sets of them. Internal to
// doctor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/features.h"
#include "doctor/feature_check.h"

namespace dflash::doctor {

inline constexpr int64_t kPlaces[] = {0, 16, 64, 256};  // first position of each bucket
inline constexpr double kFeaturesApart = 0.05;          // relative difference that counts as parted

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
  int64_t rows_ = 0;
  double place_cosine_[std::size(kPlaces)] = {};
  int64_t place_rows_[std::size(kPlaces)] = {};
};

/// Rows of one document, contiguous f32 [T, taps * width]; sums[i] is of tap i.
void add_feature_rows(const at::Tensor& a_TF, const at::Tensor& b_TF, int64_t width,
                      std::vector<FeatureSums>& sums);

}  // namespace dflash::doctor
