// Features of whole documents that lie in tensors, as goldens have them.
#pragma once

#include <ATen/ops/cat.h>

#include <vector>

#include "data/dataset.h"
#include "train/source.h"

namespace dflash::train::toy {

template <typename T>
std::vector<T> values(const at::Tensor& tensor) {
  const T* data = tensor.const_data_ptr<T>();
  return {data, data + tensor.numel()};
}

/// Rows of `taps_TF` and `argmax_T` (int64) are the tokens of `set` in order; more may follow.
class StoredSource : public FeatureSource {
 public:
  StoredSource(const data::Dataset& set, at::Tensor taps_TF, const at::Tensor& argmax_T)
      : set_(set), taps_TF_(std::move(taps_TF)), argmax_(values<int64_t>(argmax_T)) {}

  FeatureRow row(const std::vector<data::PackedPlan::Piece>& pieces) override {
    FeatureRow row;
    std::vector<at::Tensor> taps;
    for (const auto& piece : pieces) {
      const int64_t begin = set_.offsets[piece.document];
      const auto ids = set_.document_ids(piece.document);
      const auto mask = set_.document_mask(piece.document);
      row.ids.insert(row.ids.end(), ids.begin(), ids.end());
      row.loss_mask.insert(row.loss_mask.end(), mask.begin(), mask.end());
      row.argmax.insert(row.argmax.end(), argmax_.begin() + begin,
                        argmax_.begin() + begin + piece.length);
      for (int64_t t = 0; t < piece.length; ++t) {
        row.doc.push_back(static_cast<int64_t>(row.document.size()));
        row.pos.push_back(t);
      }
      row.document.push_back(piece.document);
      taps.push_back(taps_TF_.narrow(0, begin, piece.length));
    }
    row.taps_TF = at::cat(taps);
    return row;
  }
  int64_t feature_size() const override { return taps_TF_.size(1); }
  bool has_last() const override { return false; }

 private:
  const data::Dataset& set_;
  at::Tensor taps_TF_;
  std::vector<int64_t> argmax_;
};

}  // namespace dflash::train::toy
