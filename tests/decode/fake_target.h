// A target whose hidden row is any function of the whole history, with the product's own head. One
// wrong id, position or rolled-back row in a state changes every token after it. Shared with eval.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "target/target.h"

namespace dflash::fake {

/// Writes the hidden row that follows `history` (its last id included).
using HiddenFunction = std::function<void(std::span<const int64_t> history, std::span<float> row)>;

struct FakeOptions {
  int64_t vocab = 31, hidden = 16, max_positions = 4096;
  nn::Compute compute = nn::Compute::kF32;
  bool takes_trees = true;
  /// Ids that the default hidden function looks at, from the end; 0: all. Few make texts that loop.
  int64_t memory = 0;
  uint64_t seed = 1;
};

/// What one segment of one pass held.
struct SeenSegment {
  std::vector<int64_t> history;  // committed ids before the pass
  std::vector<int64_t> ids, positions;
};

class FakeTarget final : public target::Target {
 public:
  /// Hidden rows keyed by a hash of the history, a random head.
  explicit FakeTarget(const FakeOptions& options);
  /// Logits written by `logits` themselves: hidden size >= vocabulary, identity head.
  FakeTarget(const FakeOptions& options, HiddenFunction logits);

  std::unique_ptr<target::State> new_state() const override;
  target::Hidden forward(const target::Rows& rows,
                         const target::ForwardOptions& options) const override;
  at::Tensor final_norm(const at::Tensor& last_RD) const override { return last_RD * 2.0; }
  std::vector<std::pair<std::string, at::Tensor>> layer_weights(int64_t) const override {
    return {};
  }

  /// Set it to have every pass written down in `passes` (histories grow with the square).
  bool record = false;
  mutable std::vector<std::vector<SeenSegment>> passes;

 private:
  void set_up(const FakeOptions& options, at::Tensor head_VD);
  HiddenFunction hidden_;
};

/// The tap row of layer `layer` at a position: {position, id, layer, 0, ...}.
inline constexpr int64_t kTapPosition = 0, kTapId = 1, kTapLayer = 2;

/// Always `next(history)`: a scripted greedy text.
HiddenFunction scripted(std::function<int64_t(std::span<const int64_t> history)> next);

}  // namespace dflash::fake
