#include "target/pass.h"

#include <algorithm>

#include "base/error.h"

namespace dflash::target {

DeltaMemory::DeltaMemory(const nn::DeltaShape& shape)
    : conv_TC_(at::zeros({shape.conv_taps - 1, shape.conv_width()}, at::kFloat)),
      state_(at::zeros({shape.value_heads, shape.key_dim, shape.value_dim}, at::kFloat)) {}

nn::DeltaPart DeltaMemory::begin(Step step) {
  step_ = std::move(step);
  if (step_.undo) {
    if (!spare_.defined()) spare_ = at::empty(state_.sizes(), at::kFloat);
    return {step_.rows, state_, spare_};
  }
  shift_conv(step_.rows.end - step_.rows.begin);
  step_.x_RC.reset();  // nobody asks for them again: free them
  step_.inputs = nn::DeltaInputs();
  return {step_.rows, state_, state_};
}

void DeltaMemory::commit(int64_t rows) {
  const int64_t first = step_.rows.begin, all = step_.rows.end - first;
  DF_ASSERT(step_.undo || rows == all, "{} of {} rows kept of a pass without undo", rows, all);
  if (step_.undo) {
    if (rows == all) {
      std::swap(state_, spare_);
    } else if (rows > 0) {
      const nn::DeltaPart kept = {{first, first + rows}, state_, state_};
      nn::advance_delta_states(step_.inputs, {&kept, 1});
    }
    shift_conv(rows);
  }
  step_ = Step();
}

void DeltaMemory::shift_conv(int64_t rows) {
  const int64_t width = conv_TC_.size(0), fresh = std::min(rows, width);
  const at::Tensor last = step_.x_RC.narrow(0, step_.rows.begin + rows - fresh, fresh);
  conv_TC_ = at::cat({conv_TC_.narrow(0, fresh, width - fresh), last});
}

TransformerState::TransformerState(const void* owner, const TransformerConfig& config,
                                   nn::Compute storage)
    : owner_(owner) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool delta = config.mixer(layer) == Mixer::kDelta;
    caches.push_back(delta ? nn::KvBuffer()
                           : nn::KvBuffer(config.num_kv_heads, config.head_dim, storage));
    memories.push_back(delta ? DeltaMemory(config.delta) : DeltaMemory());
  }
  for (size_t layer = 0; layer < memories.size(); ++layer) {
    if (config.mixer(static_cast<int64_t>(layer)) == Mixer::kDelta) delta_layers_.push_back(layer);
  }
}

void TransformerState::commit(int64_t rows) {
  DF_ASSERT(rows >= 0 && rows <= pending_, "rows={} pending={}", rows, pending_);
  if (pending_ > 0) {
    for (const size_t layer : delta_layers_) memories[layer].commit(rows);
  }
  length_ += rows;
  pending_ = 0;
}

void TransformerState::commit_path(std::span<const int64_t> rows) {
  const int64_t count = static_cast<int64_t>(rows.size());
  for (int64_t j = 0; j < count; ++j) {
    DF_ASSERT(rows[j] >= j && rows[j] < pending_ && (j == 0 || rows[j] > rows[j - 1]),
              "row {} at place {} of {}", rows[j], j, pending_);
    if (rows[j] == j) continue;
    DF_ASSERT(takes_trees(), "row {} at place {} of a recurrent target", rows[j], j);
    for (nn::KvBuffer& cache : caches) cache.move(length_ + rows[j], length_ + j);
  }
  commit(count);
}

int64_t TransformerState::rewindable(int64_t rows) const {
  if (rows >= length_) return length_;
  return delta_layers_.empty() ? rows : 0;
}

void TransformerState::rewind(int64_t rows) {
  DF_ASSERT(pending_ == 0 && rewindable(rows) == rows, "rows={} length={} pending={}", rows,
            length_, pending_);
  length_ = rows;
}

namespace {

void check_positions(const at::Tensor& pos_R, int64_t max_positions) {
  const int64_t* positions = pos_R.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < pos_R.size(0); ++row) {
    if (positions[row] < 0 || positions[row] >= max_positions) {
      fail("target: row {}: position: expected 0 to {}, got {}", row, max_positions - 1,
           positions[row]);
    }
  }
}

/// Keys of a chain's rows, or of a tree's by their own ways; returns the longest way's length.
int64_t set_keys(const Segment& segment, int64_t length, Pass& pass) {
  const auto parent_of = [&](int64_t row) {
    return segment.parents.empty() ? row - 1 : segment.parents[static_cast<size_t>(row)];
  };
  std::vector<int64_t> way;  // rows of the segment that lead to this one, itself included
  nn::Branch* branch = nullptr;
  size_t longest = 0;
  for (int64_t row = 0; row < segment.num_rows; ++row) {
    if (const int64_t parent = parent_of(row); parent != row - 1) {
      const auto fork = std::find(way.begin(), way.end(), parent);
      DF_ASSERT(fork != way.end(), "row {} is not in depth-first order after {}", row, parent);
      way.erase(fork + 1, way.end());
      int64_t in_place = 0;
      while (in_place < static_cast<int64_t>(way.size()) && way[in_place] == in_place) ++in_place;
      branch = &pass.branches.emplace_back();
      branch->first = length + in_place;
      for (size_t j = in_place; j < way.size(); ++j) branch->rows.push_back(length + way[j]);
    }
    way.push_back(row);
    if (branch) branch->rows.push_back(length + row);
    longest = std::max(longest, way.size());
    nn::RowKeys& keys = pass.keys[static_cast<size_t>(segment.first_row + row)];
    keys.ranges[0] = {.end = length + static_cast<int64_t>(way.size())};
    keys.branch = branch;
  }
  return static_cast<int64_t>(longest);
}

}  // namespace

Pass begin_pass(const Rows& rows, const void* owner, int64_t max_positions) {
  Pass pass;
  pass.pos_R = rows.pos_R.contiguous();
  pass.num_rows = rows.ids_R.size(0);
  pass.keys.resize(static_cast<size_t>(pass.num_rows));
  int64_t next = 0;
  for (const Segment& segment : rows.segments) {
    auto* state = dynamic_cast<TransformerState*>(segment.state);
    DF_ASSERT(state && state->owner() == owner, "a state of another target");
    DF_ASSERT(state->pending() == 0, "pending={}: commit before the next forward",
              state->pending());
    DF_ASSERT(segment.first_row == next && segment.num_rows > 0, "first={} expected={} rows={}",
              segment.first_row, next, segment.num_rows);
    for (const Pass::Part& other : pass.parts) DF_ASSERT(other.state != state, "a state twice");
    DF_ASSERT(segment.parents.empty() ||
                  (state->takes_trees() &&
                   static_cast<int64_t>(segment.parents.size()) == segment.num_rows),
              "a tree of {} parents for {} rows", segment.parents.size(), segment.num_rows);
    const int64_t length = state->length() + set_keys(segment, state->length(), pass);
    if (length > max_positions) {
      fail(
          "target: the context of {} tokens is longer than the model's {}\n  hint: shorten the "
          "prompt or the answer",
          length, max_positions);
    }
    pass.parts.push_back({state, {next, next + segment.num_rows}, segment.undo});
    next += segment.num_rows;
  }
  DF_ASSERT(next == pass.num_rows, "segments cover {} of {} rows", next, pass.num_rows);
  check_positions(pass.pos_R, max_positions);
  return pass;
}

}  // namespace dflash::target
