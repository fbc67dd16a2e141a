// Optimizers over named f32 parameters: AdamW, and Muon for matrices (momentum, then the nearest
// orthogonal matrix by Newton-Schulz; vectors stay with AdamW). Which one a parameter gets follows
// from its shape, never from its name: both dimensions > 1 makes a matrix. Masters and moments are
// f32 (R-TR-2). One global norm clips all gradients (R-TR-3); a step whose gradients are not finite
// changes nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "nn/compute.h"
#include "train/newton_schulz.h"

namespace dflash::train {

enum class OptimizerKind { kAdamW, kMuon };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kMuon;
  double lr = 6e-4;             // peak rate of AdamW (all parameters, or the vectors under Muon)
  double beta1 = 0.9;           // AdamW first moment
  double beta2 = 0.95;          // AdamW second moment
  double eps = 1e-8;            // AdamW denominator
  double weight_decay = 0.0;    // decoupled, both optimizers
  double muon_lr = 0.02;        // peak rate of Muon; update scaled by sqrt(max(1, rows / columns))
  double muon_momentum = 0.95;  // Nesterov
  int64_t muon_steps = 4;       // Newton-Schulz iterations: 4 or 5 (newton_schulz.h)
  double clip_norm = 1.0;       // global gradient norm; 0: no clipping

  Json to_json() const;
};

std::string_view optimizer_name(OptimizerKind kind);
OptimizerKind parse_optimizer(std::string_view name);

/// Orthogonal factor of a matrix by quintic Newton-Schulz iterations (singular values end in
/// 0.7 .. 1.2), products in `compute`. Returns f32. The plain twin of orthogonal.h.
at::Tensor orthogonalise(const at::Tensor& matrix_OI, std::span<const Quintic> iterations,
                         nn::Compute compute);

struct UpdateResult {
  double grad_norm = 0.0;  // before clipping, after division
  bool applied = false;    // false: a gradient was not finite, nothing was changed
  double orthogonalise_seconds = 0.0;
};

class Optimizer {
 public:
  /// `parameters` are updated in place; their .grad is read. `compute` is for Newton-Schulz.
  Optimizer(const std::map<std::string, at::Tensor>& parameters, const OptimizerOptions& options,
            nn::Compute compute);

  /// Divides every gradient by `divisor` (the step's sum of weights), checks, clips and updates
  /// with both peak rates times `rate_factor`. Parameters without a gradient count as gradient 0.
  UpdateResult update(double divisor, double rate_factor);
  void zero_grad();

  /// Moments by name ("exp_avg.fc.weight", "momentum.fc.weight") and the count of updates.
  std::map<std::string, at::Tensor> state() const;
  int64_t num_updates() const { return updates_; }
  /// Copies; Error when a name, shape or dtype differs from this optimizer's own.
  void load_state(const std::map<std::string, at::Tensor>& state, int64_t num_updates);

  /// Number of elements under Muon and under AdamW, for headers.
  std::pair<int64_t, int64_t> element_counts() const;

 private:
  struct Slot {
    std::string name;
    at::Tensor parameter, first, second;  // second is undefined under Muon
    bool matrix = false;                  // updated by Muon
  };
  double gradient_norm(double divisor) const;
  /// Both multiply gradients by `factor` (clipping over the step's weights).
  void update_adamw(double factor, double rate);
  void update_muon(double factor, double rate, UpdateResult& result);
  /// One of them, by one thread; returns the seconds of its orthogonalisation.
  double update_matrix(Slot& slot, double factor, double rate) const;
  void move_along(Slot& slot, const at::Tensor& step, double rate) const;

  OptimizerOptions options_;
  nn::Compute compute_;
  std::vector<Slot> slots_;
  int64_t updates_ = 0;
};

}  // namespace dflash::train
