#include "train/metrics.h"

#include "base/error.h"

namespace dflash::train {
namespace {

double ratio(int64_t part, int64_t whole) {
  DF_ASSERT(part <= whole, "part={} whole={}", part, whole);
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

SlotMetrics::SlotMetrics(int64_t block_size)
    : slots_(block_size),
      seen_(block_size, 0),
      right_(block_size, 0),
      reached_(block_size, 0),
      kept_(block_size, 0) {}

void SlotMetrics::add(const std::vector<uint8_t>& supervised_NK,
                      const std::vector<uint8_t>& correct_NK) {
  DF_ASSERT(supervised_NK.size() == correct_NK.size() && slots_ > 0, "slots={}", slots_);
  for (size_t begin = 0; begin < supervised_NK.size(); begin += slots_) {
    bool in_prefix = true, started = false;
    for (int64_t k = 0; k < slots_; ++k) {
      const bool supervised = supervised_NK[begin + k] != 0;
      const bool correct = supervised && correct_NK[begin + k] != 0;
      if (!supervised) {
        in_prefix = in_prefix && !started;  // slots before the first prediction do not end a run
        continue;
      }
      started = true;
      ++seen_[k];
      right_[k] += correct ? 1 : 0;
      if (!in_prefix) continue;
      ++reached_[k];
      kept_[k] += correct ? 1 : 0;
      run_ += correct ? 1 : 0;
      in_prefix = correct;
    }
    ++blocks_;
  }
}

void SlotMetrics::merge(const SlotMetrics& other) {
  if (slots_ == 0) *this = SlotMetrics(other.slots_);
  DF_ASSERT(slots_ == other.slots_, "{} and {} slots", slots_, other.slots_);
  blocks_ += other.blocks_;
  run_ += other.run_;
  for (int64_t k = 0; k < slots_; ++k) {
    seen_[k] += other.seen_[k];
    right_[k] += other.right_[k];
    reached_[k] += other.reached_[k];
    kept_[k] += other.kept_[k];
  }
}

std::vector<int64_t> SlotMetrics::counts() const {
  std::vector<int64_t> out = {blocks_, run_};
  for (const auto* list : {&seen_, &right_, &reached_, &kept_}) {
    out.insert(out.end(), list->begin(), list->end());
  }
  return out;
}

void SlotMetrics::set_counts(std::span<const int64_t> counts) {
  DF_ASSERT(static_cast<int64_t>(counts.size()) == 2 + 4 * slots_, "{} counts", counts.size());
  blocks_ = counts[0];
  run_ = counts[1];
  counts = counts.subspan(2);
  for (auto* list : {&seen_, &right_, &reached_, &kept_}) {
    std::copy_n(counts.begin(), slots_, list->begin());
    counts = counts.subspan(static_cast<size_t>(slots_));
  }
}

double SlotMetrics::accuracy() const {
  int64_t seen = 0, right = 0;
  for (int64_t k = 0; k < slots_; ++k) {
    seen += seen_[k];
    right += right_[k];
  }
  return ratio(right, seen);
}

std::vector<double> SlotMetrics::slot_accuracy() const {
  std::vector<double> out;
  for (int64_t k = 0; k < slots_; ++k) out.push_back(ratio(right_[k], seen_[k]));
  return out;
}

std::vector<double> SlotMetrics::conditional_accuracy() const {
  std::vector<double> out;
  for (int64_t k = 0; k < slots_; ++k) out.push_back(ratio(kept_[k], reached_[k]));
  return out;
}

double SlotMetrics::expected_acceptance() const {
  return blocks_ > 0 ? 1.0 + static_cast<double>(run_) / static_cast<double>(blocks_) : 0.0;
}

Json SlotMetrics::to_json() const {
  return {{"accuracy", accuracy()},
          {"slot_accuracy", slot_accuracy()},
          {"conditional_accuracy", conditional_accuracy()},
          {"expected_acceptance", expected_acceptance()}};
}

}  // namespace dflash::train
