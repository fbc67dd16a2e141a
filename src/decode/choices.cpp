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
                 std::vector<int64_t> argmax_rows, std::vector<int64_t> logits_rows)
    : argmax_rows_(std::move(argmax_rows)), logits_rows_(std::move(logits_rows)) {
  if (!argmax_rows_.empty()) {
    argmax_R_ = target.head().argmax(normed_rows(target, last_RD, argmax_rows_)).contiguous();
  }
  if (!logits_rows_.empty()) {
    logits_RV_ = target.head().logits(normed_rows(target, last_RD, logits_rows_)).contiguous();
  }
}

std::span<const float> Choices::logits(int64_t row) const {
  const int64_t place = place_of(logits_rows_, row);
  DF_ASSERT(place >= 0, "row={} has no logits", row);
  const int64_t vocab = logits_RV_.size(1);
  return {logits_RV_.const_data_ptr<float>() + place * vocab, static_cast<size_t>(vocab)};
}

int64_t Choices::at(int64_t row, const Sampling& sampling, int64_t position) const {
  if (const int64_t place = place_of(argmax_rows_, row); place >= 0) {
    return argmax_R_.const_data_ptr<int64_t>()[place];
  }
  return choose(logits(row), sampling, position);
}

TokenLogProbs Choices::log_probs_at(int64_t row, int64_t token, int64_t num_top) const {
  return log_probs(logits(row), token, num_top);
}

}  // namespace dflash::decode
