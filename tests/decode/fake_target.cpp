#include "decode/fake_target.h"

#include <ATen/ops/eye.h>

#include "base/error.h"
#include "base/rng.h"

namespace dflash::fake {
namespace {

class FakeState final : public target::State {
 public:
  void commit(int64_t rows) override {
    DF_ASSERT(rows >= 0 && rows <= pending_, "commit {} of {}", rows, pending_);
    length_ += rows;
    pending_ = 0;
    ids.resize(length_);
  }
  void commit_path(std::span<const int64_t> rows) override {
    for (size_t j = 0; j < rows.size(); ++j) ids[length_ + j] = ids.at(length_ + rows[j]);
    commit(static_cast<int64_t>(rows.size()));
  }
  int64_t rewindable(int64_t rows) const override { return std::min(rows, length_); }
  void rewind(int64_t rows) override {
    ids.resize(rows);
    length_ = rows;
  }
  void begin(int64_t rows) {
    DF_ASSERT(pending_ == 0, "{} rows were never committed", pending_);
    pending_ = rows;
  }
  /// The committed ids and those on the way to row `row` of the pass.
  std::vector<int64_t> history(int64_t row, std::span<const int64_t> parents) const {
    if (parents.empty()) return {ids.begin(), ids.begin() + length_ + row + 1};
    std::vector<int64_t> way(ids.begin(), ids.begin() + length_);
    for (; row >= 0; row = parents[row]) way.insert(way.begin() + length_, ids[length_ + row]);
    return way;
  }

  std::vector<int64_t> ids;
};

at::Tensor random_matrix(int64_t rows, int64_t columns, uint64_t seed) {
  at::Tensor matrix = at::empty({rows, columns}, at::kFloat);
  float* values = matrix.mutable_data_ptr<float>();
  for (int64_t i = 0; i < rows * columns; ++i) {
    values[i] = static_cast<float>(normal01({seed, 77, static_cast<uint64_t>(i)}));
  }
  return matrix;
}

HiddenFunction hashed(const FakeOptions& options) {
  return [options](std::span<const int64_t> history, std::span<float> row) {
    const size_t memory = options.memory > 0 ? options.memory : history.size();
    uint64_t key = options.seed;
    for (int64_t id : history.last(std::min(memory, history.size()))) {
      key = mix({key, static_cast<uint64_t>(id)});
    }
    for (size_t d = 0; d < row.size(); ++d) row[d] = static_cast<float>(0.3 * normal01({key, d}));
  };
}

}  // namespace

FakeTarget::FakeTarget(const FakeOptions& options) : hidden_(hashed(options)) {
  set_up(options, random_matrix(options.vocab, options.hidden, options.seed));
}

FakeTarget::FakeTarget(const FakeOptions& options, HiddenFunction logits)
    : hidden_(std::move(logits)) {
  FakeOptions square = options;
  square.hidden = std::max<int64_t>(options.vocab, 4);                      // room for the tap row
  set_up(square, at::eye(options.vocab, square.hidden, at::kFloat) * 0.5);  // final_norm doubles
}

void FakeTarget::set_up(const FakeOptions& options, at::Tensor head_VD) {
  config_.family = "fake";
  config_.hidden_size = options.hidden;
  config_.num_layers = 8;
  config_.vocab_size = options.vocab;
  config_.max_positions = options.max_positions;
  compute_ = options.compute;
  takes_trees_ = options.takes_trees;
  table_.weight_VD = random_matrix(options.vocab, options.hidden, options.seed + 1);
  const auto dtype = options.compute == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat;
  head_.linear = nn::Linear(head_VD.to(dtype), {}, options.compute);
  head_.linear.pack();
  head_.num_ids = options.vocab;
  fingerprint_ = "fake";
  storage_ = "none";
}

std::unique_ptr<target::State> FakeTarget::new_state() const {
  return std::make_unique<FakeState>();
}

target::Hidden FakeTarget::forward(const target::Rows& rows,
                                   const target::ForwardOptions& options) const {
  const int64_t count = rows.ids_R.size(0), width = config_.hidden_size;
  const int64_t num_taps = static_cast<int64_t>(options.taps.size());
  target::Hidden hidden;
  hidden.last_RD = at::zeros({count, width}, at::kFloat);
  if (num_taps > 0) hidden.taps_RF = at::zeros({count, num_taps * width}, at::kFloat);
  const int64_t* ids = rows.ids_R.const_data_ptr<int64_t>();
  const int64_t* positions = rows.pos_R.const_data_ptr<int64_t>();
  if (record) passes.emplace_back();
  int64_t covered = 0;
  for (const target::Segment& segment : rows.segments) {
    auto& state = dynamic_cast<FakeState&>(*segment.state);
    SeenSegment seen;
    if (record) seen.history = state.ids;
    state.begin(segment.num_rows);
    DF_ASSERT(segment.parents.empty() || takes_trees_, "{} parents", segment.parents.size());
    for (int64_t r = segment.first_row; r < segment.first_row + segment.num_rows; ++r) {
      DF_ASSERT(ids[r] >= 0 && ids[r] < config_.vocab_size, "id={}", ids[r]);
      seen.ids.push_back(ids[r]);
      seen.positions.push_back(positions[r]);
      state.ids.push_back(ids[r]);
      const std::vector<int64_t> history = state.history(r - segment.first_row, segment.parents);
      DF_ASSERT(positions[r] + 1 == static_cast<int64_t>(history.size()), "pos={}", positions[r]);
      DF_ASSERT(positions[r] < config_.max_positions, "pos={}", positions[r]);
      hidden_(history,
              {hidden.last_RD.mutable_data_ptr<float>() + r * width, static_cast<size_t>(width)});
      for (int64_t t = 0; t < num_taps; ++t) {
        float* tap = hidden.taps_RF.mutable_data_ptr<float>() + (r * num_taps + t) * width;
        tap[kTapPosition] = static_cast<float>(positions[r]);
        tap[kTapId] = static_cast<float>(ids[r]);
        tap[kTapLayer] = static_cast<float>(options.taps[t]);
      }
    }
    covered += segment.num_rows;
    if (record) passes.back().push_back(std::move(seen));
  }
  DF_ASSERT(covered == count, "segments cover {} of {} rows", covered, count);
  return hidden;
}

HiddenFunction scripted(std::function<int64_t(std::span<const int64_t> history)> next) {
  return [next](std::span<const int64_t> history, std::span<float> row) {
    std::fill(row.begin(), row.end(), 0.0f);
    row[next(history)] = 20.0f;
  };
}

}  // namespace dflash::fake
