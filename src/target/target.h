// The frozen target as rows: prefill, plain decoding, verification, batched generation and capture
// are the same call (DESIGN.md 4). One file a family implements it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nn/compute.h"
#include "nn/head.h"

namespace dflash::target {

struct TargetConfig {
  std::string family;  // "llama", "qwen3", ...
  /// intermediate_size: of dense MLPs; 0 when every block is a mixture of experts.
  int64_t hidden_size = 0, intermediate_size = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0,
          head_dim = 0, vocab_size = 0, max_positions = 0;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  bool tied_embeddings = false;
  std::vector<int64_t> eos_ids;  // union of all places that list end ids; ascending
};

/// Everything one sequence keeps between passes. Storage rows [0, length) are committed; a forward
/// writes its rows after them; commit keeps the first `rows` of these and drops the rest (0 drops
/// all). Every forward is followed by one commit before the state takes part in another.
class State {
 public:
  virtual ~State() = default;
  int64_t length() const { return length_; }
  virtual void commit(int64_t rows) = 0;
  /// The same for a way through a tree: keeps these rows of the forward (0-based, ascending, each
  /// the parent of the next), as if they had been a chain.
  virtual void commit_path(std::span<const int64_t> rows) = 0;

  /// The longest prefix of at most `rows` committed rows that rewind can return to; recurrent
  /// layers remember their last row only, so there it is all rows or none.
  virtual int64_t rewindable(int64_t rows) const = 0;
  /// Forgets the committed rows from `rows` on; rewindable(rows) == rows, nothing pending.
  virtual void rewind(int64_t rows) = 0;

 protected:
  int64_t length_ = 0;
  int64_t pending_ = 0;
};

/// Rows [first_row, first_row + num_rows) of the pass belong to `state`, as a chain or as a tree: a
/// row sees the committed rows, its ancestors and itself, and has the bits that it would have at
/// the end of the chain that leads to it.
struct Segment {
  State* state = nullptr;
  int64_t first_row = 0, num_rows = 0;
  /// Whether commit may keep fewer rows than the pass had. Without it recurrent layers need not
  /// remember how to step back; the results are the same bits.
  bool undo = true;
  /// Empty: a chain. Else by row of the segment the one before it, -1 for the first row only, in
  /// depth-first order: a row follows its parent, or rows that all descend from its parent. Only
  /// for targets that take trees.
  std::span<const int64_t> parents = {};
};

struct Rows {
  at::Tensor ids_R;  // int64
  at::Tensor pos_R;  // int64 rotary positions (storage rows follow the state's length)
  std::span<const Segment> segments;
};

struct ForwardOptions {
  std::vector<int64_t> taps;  // "residual after 0-based block i", in fc order; -1 = embedding
};

struct Hidden {
  at::Tensor last_RD;  // residual after the last block, before the final norm, f32
  at::Tensor taps_RF;  // f32, F = taps.size() * D; undefined without taps
};

class Target {
 public:
  virtual ~Target() = default;

  virtual std::unique_ptr<State> new_state() const = 0;
  /// No grad. Segments cover the rows in order, each state once. Error: id outside the vocabulary,
  /// position or length beyond max_positions; the states are then as before.
  virtual Hidden forward(const Rows& rows, const ForwardOptions& options) const = 0;
  /// The target's own final norm, once; rows of Hidden::last_RD only.
  virtual at::Tensor final_norm(const at::Tensor& last_RD) const = 0;

  const TargetConfig& config() const { return config_; }
  nn::Compute compute() const { return compute_; }
  /// Whether segments may be trees: recurrent layers have one state a row, so they take chains.
  bool takes_trees() const { return takes_trees_; }
  const nn::Table& table() const { return table_; }
  const nn::Head& head() const { return head_; }
  /// The head of these ids alone (a reduced draft vocabulary), packed; its rows have the bits of
  /// the whole head's. Ids in [0, head().num_ids).
  virtual nn::Head head_of(const std::vector<int64_t>& ids) const {
    return nn::head_of(head_, ids, std::nullopt);
  }
  /// Hash over architecture, names, dtypes, shapes and a sample of bytes.
  const std::string& fingerprint() const { return fingerprint_; }
  /// Where the weights came from and how they are stored ("Q4_1 widened to bf16"), for headers.
  const std::string& storage() const { return storage_; }

  /// Parameters of block `layer` by their checkpoint names ("self_attn.q_proj.weight"), f32 copies,
  /// for `--init target-layers`.
  virtual std::vector<std::pair<std::string, at::Tensor>> layer_weights(int64_t layer) const = 0;

 protected:
  TargetConfig config_;
  nn::Compute compute_ = nn::Compute::kF32;
  bool takes_trees_ = false;
  nn::Table table_;
  nn::Head head_;
  std::string fingerprint_, storage_;
};

/// Taps for `num_taps` of `num_layers`: round-half-to-even(1 + i (T-4)/(n-1)); one tap: T/2.
/// MODELS.md 4.3, recipe R-CAP-1.
std::vector<int64_t> default_taps(int64_t num_layers, int64_t num_taps);

}  // namespace dflash::target
