// What one sequence keeps between passes, and one pass over rows of many sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "nn/attention.h"
#include "nn/delta.h"
#include "target/target.h"
#include "target/transformer_config.h"

namespace dflash::target {

/// One delta net layer of one sequence. A pass leaves what it needs to keep any number of its rows;
/// rows that are dropped leave no trace, since the recurrence is run again from the committed state
/// over the kept ones (MODELS.md 7.5; it is never inverted).
class DeltaMemory {
 public:
  DeltaMemory() = default;
  explicit DeltaMemory(const nn::DeltaShape& shape);

  /// Rows of a pass over this layer: x_RC before the convolution, and the delta rule's inputs.
  struct Step {
    nn::RowRange rows;
    at::Tensor x_RC;
    nn::DeltaInputs inputs;
    bool undo = true;
  };
  nn::ConvPart conv_part(nn::RowRange rows) const { return {rows, conv_TC_}; }
  /// States to read from and to write to; without undo they are the same.
  nn::DeltaPart begin(Step step);
  /// Keeps the first `rows` rows of the step.
  void commit(int64_t rows);

 private:
  /// Takes the first `rows` rows of the step into the convolution's memory.
  void shift_conv(int64_t rows);

  at::Tensor conv_TC_;        // the last rows before the convolution
  at::Tensor state_, spare_;  // [value heads, key dim, value dim]; `spare_`: after all rows
  Step step_;
};

class TransformerState final : public State {
 public:
  /// `owner`: whoever made it; states of other targets are refused.
  TransformerState(const void* owner, const TransformerConfig& config, nn::Compute storage);

  void commit(int64_t rows) override;
  void commit_path(std::span<const int64_t> rows) override;
  int64_t rewindable(int64_t rows) const override;
  void rewind(int64_t rows) override;
  void expect(int64_t rows) { pending_ = rows; }
  int64_t pending() const { return pending_; }
  bool takes_trees() const { return delta_layers_.empty(); }
  const void* owner() const { return owner_; }

  /// By layer; only those of the layer's kind are used. Cache rows past length + pending are
  /// leftovers, never read.
  std::vector<nn::KvBuffer> caches;
  std::vector<DeltaMemory> memories;

 private:
  const void* owner_;
  std::vector<size_t> delta_layers_;
};

/// The states behind the rows of a pass and what every row may attend to.
struct Pass {
  struct Part {
    TransformerState* state = nullptr;
    nn::RowRange rows;
    bool undo = true;
  };
  std::vector<Part> parts;
  std::vector<nn::RowKeys> keys;    // buffers are set per layer
  std::deque<nn::Branch> branches;  // of rows that stand elsewhere than in their chain
  at::Tensor pos_R;
  int64_t num_rows = 0;
};

/// Checks segments, lengths and positions against the states; changes none of them.
Pass begin_pass(const Rows& rows, const void* owner, int64_t max_positions);

}  // namespace dflash::target
