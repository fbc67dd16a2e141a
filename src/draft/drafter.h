// The DFlash drafter: a small Qwen3-style stack whose layers read K and V of fused target features
// (context, strictly before the anchor) and of the block itself. Paper section 3, MODELS.md 4.1.
// One forward serves training (N blocks over packed documents, autograd) and decoding (one block a
// sequence, packed kernels, no grad). Testable without any target.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
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

/// Context of one decoding sequence: committed rows only, append-only. Block rows never stay here.
class SequenceContext {
 public:
  int64_t length() const { return length_; }

 private:
  friend class Drafter;
  std::vector<nn::KvBuffer> layers_;
  int64_t length_ = 0;
};

class Drafter {
 public:
  /// Fresh weights: normal(0, 0.02) matrices, ones for norms, keyed by seed.
  static std::shared_ptr<Drafter> create(const DraftSpec& spec, nn::Compute compute, uint64_t seed);
  /// From named f32 tensors (z-lab names without "model."). Error: missing, extra or misshapen.
  static std::shared_ptr<Drafter> from_weights(const DraftSpec& spec, nn::Compute compute,
                                               const std::map<std::string, at::Tensor>& weights);

  const DraftSpec& spec() const { return spec_; }
  nn::Compute compute() const { return compute_; }

  /// Every parameter by its checkpoint name; the tensors are the live ones.
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  void set_requires_grad(bool on);
  /// Rebuilds the packed forms after weights changed (before decoding).
  void pack();

  // --- training (grad mode as the caller set it) ---
  /// taps_TF f32, pos_T int64 -> context of every layer, in the graph.
  PackedContext context(const at::Tensor& taps_TF, const at::Tensor& pos_T) const;
  /// embed_NKD f32 (the target's table) -> hidden rows after the drafter's own final norm, [N, K, D].
  at::Tensor forward(const PackedContext& context, const block::Blocks& blocks,
                     const at::Tensor& embed_NKD) const;

  // --- decoding (no grad) ---
  std::unique_ptr<SequenceContext> new_context() const;
  /// Appends committed rows: taps_RF f32, pos_R int64, rows of several sequences one after the
  /// other; num_rows[i] rows go to contexts[i].
  void append(std::span<SequenceContext* const> contexts, std::span<const int64_t> num_rows,
              const at::Tensor& taps_RF, const at::Tensor& pos_R) const;
  /// One block a context: blocks from block::decoding_blocks, in the same order -> [N, K, D].
  at::Tensor forward(std::span<SequenceContext* const> contexts, const block::Blocks& blocks,
                     const at::Tensor& embed_NKD) const;

 private:
  struct Layer;
  Drafter() = default;

  DraftSpec spec_;
  nn::Compute compute_ = nn::Compute::kF32;
  std::map<std::string, at::Tensor> parameters_;
  nn::Linear fc_;
  at::Tensor hidden_norm_D_, norm_D_;
  std::vector<std::shared_ptr<Layer>> layers_;
  nn::Rope rope_;
};

}  // namespace dflash::draft
