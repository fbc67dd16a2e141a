// What a step's slots did: accuracy of each slot, accuracy among blocks still in their leading
// correct run, and the expected acceptance length. Counts, so that sums over passes and ranks are
// exact; supervised slots only, a label outside the draft vocabulary is a miss (R-LOSS-8, LOSS-15).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"

namespace dflash::train {

class SlotMetrics {
 public:
  explicit SlotMetrics(int64_t block_size = 0);

  /// Blocks as [N * K]: supervised (0 or 1) and, where supervised, whether the drafter's best id
  /// is the label.
  void add(const std::vector<uint8_t>& supervised_NK, const std::vector<uint8_t>& correct_NK);
  void merge(const SlotMetrics& other);
  /// Everything as one list, whose sum over ranks is what they did together; and back.
  std::vector<int64_t> counts() const;
  void set_counts(std::span<const int64_t> counts);

  double accuracy() const;                           // over all supervised slots
  std::vector<double> slot_accuracy() const;         // per slot, 0 where nothing is supervised
  std::vector<double> conditional_accuracy() const;  // given that all earlier slots were right
  /// Mean leading run of correct supervised slots, plus the bonus token.
  double expected_acceptance() const;
  int64_t num_blocks() const { return blocks_; }
  Json to_json() const;

 private:
  int64_t slots_ = 0, blocks_ = 0, run_ = 0;
  std::vector<int64_t> seen_, right_, reached_, kept_;
};

}  // namespace dflash::train
