#include "train/optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include "base/error.h"
#include "base/profile.h"
#include "base/timer.h"
#include "nn/gemm_bf16.h"
#include "plan/operations.h"
#include "train/kernels/rows.h"
#include "train/newton_schulz.h"
#include "train/orthogonal.h"

namespace dflash::train {
namespace {

constexpr int64_t kNormBlock = 1 << 16;

/// Sum of squares in f64 of fixed blocks in a fixed order: the same on any number of threads.
double sum_squares(const at::Tensor& tensor) {
  const float* data = tensor.const_data_ptr<float>();
  const int64_t count = tensor.numel(), blocks = (count + kNormBlock - 1) / kNormBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  const auto& kernels = kernels::row_kernels();
#pragma omp parallel for schedule(static) if (blocks > 2)
  for (int64_t b = 0; b < blocks; ++b) {
    sums[b] =
        kernels.sum_squares(data + b * kNormBlock, std::min(kNormBlock, count - b * kNormBlock));
  }
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

Json OptimizerOptions::to_json() const {
  return {{"kind", optimizer_name(kind)},
          {"lr", lr},
          {"beta1", beta1},
          {"beta2", beta2},
          {"eps", eps},
          {"weight_decay", weight_decay},
          {"muon_lr", muon_lr},
          {"muon_momentum", muon_momentum},
          {"muon_steps", muon_steps},
          {"clip_norm", clip_norm}};
}

std::string_view optimizer_name(OptimizerKind kind) {
  return kind == OptimizerKind::kMuon ? "muon" : "adamw";
}

OptimizerKind parse_optimizer(std::string_view name) {
  if (name == "muon") return OptimizerKind::kMuon;
  if (name == "adamw") return OptimizerKind::kAdamW;
  fail("optimizer: {}: expected muon or adamw", name);
}

at::Tensor orthogonalise(const at::Tensor& matrix_OI, std::span<const Quintic> iterations,
                         nn::Compute compute) {
  const bool tall = matrix_OI.size(0) > matrix_OI.size(1);
  const auto type = compute == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat;
  const double norm = std::sqrt(sum_squares(matrix_OI));
  at::Tensor x = (matrix_OI / (norm + 1e-7)).to(type);
  if (tall) x = x.t().contiguous();  // the short side squared is what the iteration multiplies
  for (const auto& [a, b, c] : iterations) {
    const at::Tensor gram = at::mm(x, x.t());
    const at::Tensor poly = at::addmm(gram, gram, gram, b, c);
    x = at::addmm(x, poly, x, a, 1.0);
  }
  if (tall) x = x.t();
  return x.to(at::kFloat);
}

Optimizer::Optimizer(const std::map<std::string, at::Tensor>& parameters,
                     const OptimizerOptions& options, nn::Compute compute)
    : options_(options), compute_(compute) {
  for (const auto& [name, parameter] : parameters) {
    DF_ASSERT(parameter.scalar_type() == at::kFloat && parameter.is_contiguous(),
              "master {} is not contiguous f32", name);
    Slot slot{name, parameter, at::zeros_like(parameter.detach()), {}, false};
    slot.matrix = options.kind == OptimizerKind::kMuon && parameter.dim() == 2 &&
                  parameter.size(0) > 1 && parameter.size(1) > 1;
    if (!slot.matrix) slot.second = at::zeros_like(slot.first);
    slots_.push_back(std::move(slot));
  }
}

double Optimizer::gradient_norm(double divisor) const {
  double sum = 0.0;
  for (const Slot& slot : slots_) {
    if (slot.parameter.grad().defined()) sum += sum_squares(slot.parameter.grad());
  }
  return std::sqrt(sum) / divisor;
}

UpdateResult Optimizer::update(double divisor, double rate_factor) {
  const c10::NoGradGuard guard;
  DF_ASSERT(divisor > 0, "divisor={}", divisor);
  UpdateResult result;
  profile::Range part("optimizer", "norm of the gradient");
  result.grad_norm = gradient_norm(divisor);
  if (!std::isfinite(result.grad_norm)) return result;
  const bool clips = options_.clip_norm > 0 && result.grad_norm > options_.clip_norm;
  const double factor = (clips ? options_.clip_norm / result.grad_norm : 1.0) / divisor;
  ++updates_;
  for (Slot& slot : slots_) {
    if (!slot.parameter.grad().defined()) {
      slot.parameter.mutable_grad() = at::zeros_like(slot.parameter.detach());
    }
  }
  part.next("orthogonalisation, all of Muon", [&] {
    profile::Work work;
    for (const Slot& slot : slots_) {
      if (!slot.matrix) continue;
      work.operations += plan::newton_schulz_operations(
          slot.parameter.size(0), slot.parameter.size(1), options_.muon_steps);
    }
    return work;
  });
  update_muon(factor, options_.muon_lr * rate_factor, result);
  part.next("AdamW");
  update_adamw(factor, options_.lr * rate_factor);
  result.applied = true;
  return result;
}

void Optimizer::move_along(Slot& slot, const at::Tensor& step, double rate) const {
  const double rows = static_cast<double>(slot.parameter.size(0));
  const double scale = std::sqrt(std::max(1.0, rows / static_cast<double>(slot.parameter.size(1))));
  if (options_.weight_decay > 0) slot.parameter.mul_(1.0 - rate * options_.weight_decay);
  slot.parameter.add_(step, -rate * scale);
}

double Optimizer::update_matrix(Slot& slot, double factor, double rate) const {
  const c10::NoGradGuard guard;
  const at::Tensor gradient = slot.parameter.grad().contiguous();
  const at::Tensor direction = at::empty(gradient.sizes(), at::kFloat);
  const double squares = kernels::row_kernels().muon_direction(
      gradient.const_data_ptr<float>(), slot.first.mutable_data_ptr<float>(), gradient.numel(),
      {.momentum = static_cast<float>(options_.muon_momentum),
       .factor = static_cast<float>((1.0 - options_.muon_momentum) * factor)},
      direction.mutable_data_ptr<float>());
  const Timer timer;
  const auto fast = nn::tile_products_supported(compute_) ? orthogonalise_tiles : orthogonalise_f32;
  const at::Tensor step = fast(direction, std::sqrt(squares), quintics(options_.muon_steps));
  const double seconds = timer.seconds();
  move_along(slot, step, rate);
  return seconds;
}

void Optimizer::update_muon(double factor, double rate, UpdateResult& result) {
  std::vector<Slot*> matrices;
  for (Slot& slot : slots_) {
    if (slot.matrix) matrices.push_back(&slot);
  }
  // Largest first, so that no thread ends with one.
  std::stable_sort(matrices.begin(), matrices.end(), [](const Slot* a, const Slot* b) {
    return a->parameter.numel() > b->parameter.numel();
  });
  const auto count = static_cast<int64_t>(matrices.size());
  const int threads = count >= nn::num_threads() ? nn::num_threads() : 1;
  double seconds = 0;
#pragma omp parallel for schedule(dynamic, 1) reduction(+ : seconds) num_threads(threads) \
    if (threads > 1)
  for (int64_t i = 0; i < count; ++i) seconds += update_matrix(*matrices[i], factor, rate);
  result.orthogonalise_seconds = seconds / threads;
}

void Optimizer::update_adamw(double factor, double rate) {
  std::vector<at::Tensor> parameters, gradients, first, second, steps;
  for (Slot& slot : slots_) {
    if (slot.matrix) continue;
    parameters.push_back(slot.parameter);
    gradients.push_back(slot.parameter.grad());
    first.push_back(slot.first);
    second.push_back(slot.second);
    steps.push_back(at::full({}, static_cast<double>(updates_), at::kFloat));
  }
  if (parameters.empty()) return;
  at::_fused_adamw_(parameters, gradients, first, second, {}, steps, rate, options_.beta1,
                    options_.beta2, options_.weight_decay, options_.eps, /*amsgrad=*/false,
                    /*maximize=*/false, /*grad_scale=*/at::full({}, 1.0 / factor, at::kFloat));
}

void Optimizer::zero_grad() {
  for (Slot& slot : slots_) slot.parameter.mutable_grad().reset();
}

std::map<std::string, at::Tensor> Optimizer::state() const {
  std::map<std::string, at::Tensor> state;
  for (const Slot& slot : slots_) {
    state[(slot.matrix ? "momentum." : "exp_avg.") + slot.name] = slot.first;
    if (slot.second.defined()) state["exp_avg_sq." + slot.name] = slot.second;
  }
  return state;
}

void Optimizer::load_state(const std::map<std::string, at::Tensor>& saved, int64_t num_updates) {
  const c10::NoGradGuard guard;
  const auto own = state();
  for (const auto& [name, tensor] : saved) {
    if (!own.contains(name)) {
      fail(
          "optimizer state: {}: expected a tensor of {}, got another optimizer's\n  hint: resume "
          "with the --optimizer that the run began with, or start a new run with --init-from",
          name, optimizer_name(options_.kind));
    }
  }
  for (const auto& [name, tensor] : own) {
    const auto found = saved.find(name);
    if (found == saved.end()) {
      fail("optimizer state: {}: missing\n  hint: resume with the same --optimizer", name);
    }
    if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != at::kFloat) {
      fail("optimizer state: {}: expected f32 {}, got {} {}", name, fmt::join(tensor.sizes(), "x"),
           toString(found->second.scalar_type()), fmt::join(found->second.sizes(), "x"));
    }
    tensor.copy_(found->second);
  }
  updates_ = num_updates;
}

std::pair<int64_t, int64_t> Optimizer::element_counts() const {
  std::pair<int64_t, int64_t> counts{0, 0};
  for (const Slot& slot : slots_) {
    (slot.matrix ? counts.first : counts.second) += slot.parameter.numel();
  }
  return counts;
}

}  // namespace dflash::train
