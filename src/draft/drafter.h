// The DFlash drafter: a small Qwen3-style stack whose layers read K and V of fused target features
// (context, strictly before the anchor) and of the block itself. Paper section 3, MODELS.md 4.1.
// One layer implementation (layer.h) serves training (N blocks over packed documents, autograd) and
// decoding (one block a sequence, packed kernels, no grad). Testable without any target.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "block/blocks.h"
#include "draft/spec.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/rope.h"

namespace dflash::draft {

/// Context K (normed, roped) and V of every layer for the rows of one packed row, in the graph.
struct PackedContext {
  std::vector<at::Tensor> k_TGE, v_TGE;  // one a layer, f32
};

/// Context of one decoding sequence: committed rows only. Block rows never stay here.
class SequenceContext {
 public:
  int64_t length() const { return length_; }
  /// Forgets the rows from `rows` on, for a sequence that begins like this one. rows <= length().
  void rewind(int64_t rows);

 private:
  friend class Drafter;
  std::vector<nn::KvBuffer> layers_;
  int64_t length_ = 0;
};

/// Tables that a drafter brings along instead of using the target's (DESIGN.md 4, "Tables and
/// heads"); frozen, f32 or bf16. The head has a row for each of draft_ids, else for each vocabulary
/// id.
struct OwnTables {
  at::Tensor embed_VD, head_VD;  // each undefined: the target's serves

  bool any() const { return embed_VD.defined() || head_VD.defined(); }
};

class Drafter {
 public:
  /// Fresh weights: normal(0, 0.02) matrices, ones for norms, zero biases; keyed by (seed, name).
  /// Call pack() before decoding.
  static std::shared_ptr<Drafter> create(const DraftSpec& spec, nn::Compute compute, uint64_t seed);
  /// From named f32 tensors (z-lab names without "model."), taken over without a copy where they
  /// are contiguous f32. Error: missing, extra or misshapen. Call pack() before decoding.
  static std::shared_ptr<Drafter> from_weights(const DraftSpec& spec, nn::Compute compute,
                                               const std::map<std::string, at::Tensor>& weights);

  const DraftSpec& spec() const { return spec_; }
  nn::Compute compute() const { return compute_; }

  /// Every parameter by its checkpoint name; the tensors are the live ones. Change them in place.
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  void set_requires_grad(bool on);
  /// Never among the parameters: nothing trains them. Error: shapes that do not fit, values that
  /// are not finite.
  void set_own_tables(OwnTables tables);
  /// Another drafter's, which has checked them. Asserts sizes that fit.
  void share_own_tables(const Drafter& other);
  const OwnTables& own_tables() const { return own_tables_; }
  /// Rebuilds the packed forms; needed before decoding, and again after weights changed (asserted).
  void pack();
  /// Copies blocks of the target into layers (`--init target-layers`): weights[l] is the named
  /// parameters of one block ("self_attn.q_proj.weight", ...) for drafter layer l; q/k norms that
  /// the target lacks become ones. Error: shapes that differ. final_norm_D (may be undefined) goes
  /// into the drafter's own norm, since the same head follows. Not packed afterwards.
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  void init_from_target_layers(const std::vector<NamedTensors>& weights,
                               const at::Tensor& final_norm_D);

  /// Called with every stage of both forwards by name, in order: "fused" [R, D], "layers.0.k" and
  /// "layers.0.v" [R, G, E] for all layers (rows of the context as they are appended), then
  /// "layers.0.hidden" [N * K, D] and "hidden" [N * K, D] of the block. Empty: none.
  using StageObserver = std::function<void(const std::string& stage, const at::Tensor& value)>;
  void set_observer(StageObserver observer) { observer_ = std::move(observer); }

  // --- training (grad mode as the caller set it; always the live weights, never the packed) ---
  /// taps_TF f32, pos_T int64 -> context of every layer, in the graph.
  PackedContext context(const at::Tensor& taps_TF, const at::Tensor& pos_T) const;
  /// embed_NKD f32 (the target's table) -> hidden rows after the drafter's own final norm, [N, K,
  /// D].
  at::Tensor forward(const PackedContext& context, const block::Blocks& blocks,
                     const at::Tensor& embed_NKD) const;

  // --- decoding (no grad) ---
  std::unique_ptr<SequenceContext> new_context() const;
  /// Appends committed rows: taps_RF f32, pos_R int64, rows of several sequences one after the
  /// other; num_rows[i] rows go to contexts[i].
  void append(std::span<SequenceContext* const> contexts, std::span<const int64_t> num_rows,
              const at::Tensor& taps_RF, const at::Tensor& pos_R) const;
  /// One block a context: blocks from block::decoding_blocks, in the same order -> [N, K, D]. Each
  /// context must hold at least the rows before its anchor.
  at::Tensor forward(std::span<SequenceContext* const> contexts, const block::Blocks& blocks,
                     const at::Tensor& embed_NKD) const;

  /// One layer; defined in layer.h, internal to draft/.
  struct Layer;

 private:
  Drafter() = default;
  void expect_packed() const;
  void observe(const std::string& stage, const at::Tensor& value) const {
    if (observer_) observer_(stage, value);
  }
  /// The drafter's own final norm: rows that go to the head.
  at::Tensor finish(const at::Tensor& h_RD) const;
  void bind(std::map<std::string, at::Tensor> weights);
  nn::Linear context_products() const;
  using KeysValues = std::vector<std::pair<at::Tensor, at::Tensor>>;
  /// Normed rows of fc's -> k and v projections of every layer -> keys and values.
  KeysValues context_rows(const at::Tensor& fc_RD, const at::Tensor& pos_R,
                          const std::function<KeysValues(const at::Tensor& c_RD)>& project) const;
  KeysValues split_context(const at::Tensor& kv_RO) const;

  DraftSpec spec_;
  nn::Compute compute_ = nn::Compute::kF32;
  std::map<std::string, at::Tensor> parameters_;
  OwnTables own_tables_;
  at::Tensor fc_DF_, hidden_norm_D_, norm_D_;
  std::vector<std::shared_ptr<Layer>> layers_;
  nn::Rope rope_;
  StageObserver observer_;
  nn::Linear packed_fc_, packed_context_kv_;  // K and V of all layers as one product
  std::vector<uint32_t> packed_versions_;     // of every parameter; empty: not packed
};

/// Checkpoint name -> shape of every parameter of a drafter, in name order.
std::map<std::string, std::vector<int64_t>> parameter_shapes(const DraftSpec& spec);

}  // namespace dflash::draft
