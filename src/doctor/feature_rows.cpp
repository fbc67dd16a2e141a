#include "doctor/feature_rows.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dflash::doctor {

at::Tensor feature_tensor(const data::FeatureReader& reader,
                          const data::DocumentFeatures& features) {
  const auto& info = reader.info();
  const auto rows = static_cast<int64_t>(features.ids.size());
  const auto columns = info.hidden_size * static_cast<int64_t>(info.taps.size());
  const auto type = info.dtype == io::Dtype::kBF16 ? at::kBFloat16 : at::kFloat;
  return at::from_blob(const_cast<std::byte*>(features.taps.data()), {rows, columns}, type)
      .to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

double features_bound(bool both_f32) {
  return both_f32 ? kExactFeaturesApart : kFeaturesApart;
}

bool is_f32(const data::FeatureInfo& info) {
  return info.dtype == io::Dtype::kF32 && info.kernels.ends_with("f32");
}

std::string tap_fault(const TapDifference& tap, double bound) {
  if (!std::isfinite(tap.relative)) return "values that are not finite";
  if (tap.relative > bound) {
    return fmt::format("apart by {:.2g} % of their size", 100 * tap.relative);
  }
  if (tap.worst_row > kRowsApart) {
    return fmt::format("a row at position {} that is another's or damaged (apart by {:.0f} %)",
                       tap.worst_position, 100 * tap.worst_row);
  }
  return "";
}

void FeatureSums::add(const float* a, const float* b, int64_t width, int64_t position) {
  double difference = 0, a2 = 0, b2 = 0, product = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double x = a[i], y = b[i];
    difference += (x - y) * (x - y);
    a2 += x * x;
    b2 += y * y;
    product += x * y;
  }
  const double length = std::sqrt(a2 * b2);
  const double cosine = length > 0 ? product / length : (difference == 0 ? 1.0 : 0.0);
  difference_ += difference;
  size_ += b2;
  const double apart = std::sqrt(b2 > 0 ? difference / b2 : difference);
  if (apart > worst_) {
    worst_ = apart;
    worst_position_ = position;
  }
  cosine_ += cosine;
  ++rows_;
  size_t place = std::size(kPlaces) - 1;
  while (position < kPlaces[place]) --place;
  place_cosine_[place] += cosine;
  ++place_rows_[place];
}

TapDifference FeatureSums::finish(int64_t layer) const {
  TapDifference tap{.layer = layer,
                    .relative = std::sqrt(size_ > 0 ? difference_ / size_ : difference_),
                    .worst_row = worst_,
                    .worst_position = worst_position_,
                    .cosine = rows_ > 0 ? cosine_ / static_cast<double>(rows_) : 0};
  for (size_t p = 0; p < std::size(kPlaces) && place_rows_[p] > 0; ++p) {
    tap.cosine_by_place.push_back(place_cosine_[p] / static_cast<double>(place_rows_[p]));
  }
  return tap;
}

void add_feature_rows(const at::Tensor& a_TF, const at::Tensor& b_TF, int64_t width,
                      std::vector<FeatureSums>& sums) {
  const auto *a = a_TF.const_data_ptr<float>(), *b = b_TF.const_data_ptr<float>();
  const int64_t columns = a_TF.size(1);
  for (int64_t t = 0; t < a_TF.size(0); ++t) {
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t at = t * columns + static_cast<int64_t>(i) * width;
      sums[i].add(a + at, b + at, width, t);
    }
  }
}

}  // namespace dflash::doctor
