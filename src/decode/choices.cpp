#include "decode/choices.h"

#include <ATen/ops/index_select.h>

#include "base/error.h"

namespace dflash::decode {
namespace {

at::Tensor normed_rows(const target::Target& target, const at::Tensor& last_RD,
                       std::vector<int64_t>& rows) {
  if (static_cast<int64_t>(rows.size()) == last_RD.size(0)) return target.final_norm(last_RD);
  const int64_t count = static_cast<int64_t>(rows.size());
  const at::Tensor index = at::from_blob(rows.data(), {count}, at::kLong);
  return target.final_norm(last_RD.index_select(0, index));
}

/// Place of `row` in ascending `rows`, or -1.
int64_t place_of(const std::vector<int64_t>& rows, int64_t row) {
  const auto found = std::lower_bound(rows.begin(), rows.end(), row);
  return found != rows.end() && *found == row ? found - rows.begin() : -1;
}

}  // namespace

Choices::Choices(const target::Target& target, const at::Tensor& last_RD,
                 std::vector<int64_t> greedy, std::vector<int64_t> sampled)
    : greedy_(std::move(greedy)), sampled_(std::move(sampled)) {
  if (!greedy_.empty()) {
    argmax_R = target.head().argmax(normed_rows(target, last_RD, greedy_)).contiguous();
  }
  if (!sampled_.empty()) {
    logits_RV = target.head().logits(normed_rows(target, last_RD, sampled_)).contiguous();
  }
}

int64_t Choices::at(int64_t row, const Sampling& sampling, int64_t position) const {
  if (const int64_t place = place_of(greedy_, row); place >= 0) {
    return argmax_R.const_data_ptr<int64_t>()[place];
  }
  const int64_t place = place_of(sampled_, row);
  DF_ASSERT(place >= 0, "row={} has no logits", row);
  const int64_t vocab = logits_RV.size(1);
  const float* logits = logits_RV.const_data_ptr<float>() + place * vocab;
  return choose({logits, static_cast<size_t>(vocab)}, sampling, position);
}

}  // namespace dflash::decode
