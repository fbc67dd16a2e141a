#include "nn/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/sin.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace dflash::nn {
namespace {

/// Llama 3.1's frequency rule: long waves slowed by `factor`, short ones kept, a ramp between.
double llama3_frequency(double inv, const RopeConfig& config) {
  const double wave = 2 * std::numbers::pi / inv;
  const double turns = config.original_max_positions / wave;
  if (turns > config.high_freq_factor) return inv;
  if (turns < config.low_freq_factor) return inv / config.factor;
  const double ramp =
      (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
  return (1 - ramp) * inv / config.factor + ramp * inv;
}

}  // namespace

Rope::Rope(const RopeConfig& config, int64_t head_dim) : config_(config) {
  if (head_dim <= 0 || head_dim % 2) {
    fail("rope: head_dim: expected a positive even number, got {}", head_dim);
  }
  if (config.scaling != "default" && config.scaling != "llama3") {
    fail("rope: scaling: expected default or llama3, got '{}'", config.scaling);
  }
  const std::vector<double>& factors = config.frequency_factors;
  if (!factors.empty() && static_cast<int64_t>(factors.size()) != head_dim / 2) {
    fail("rope: frequency factors: expected {}, got {}", head_dim / 2, factors.size());
  }
  inv_freq_.resize(head_dim / 2);
  for (int64_t f = 0; f < head_dim / 2; ++f) {
    const double inv = std::pow(config.theta, -2.0 * static_cast<double>(f) / head_dim);
    inv_freq_[f] = config.scaling == "llama3" ? llama3_frequency(inv, config) : inv;
    if (!factors.empty()) inv_freq_[f] /= factors[f];
  }
}

at::Tensor Rope::apply(const at::Tensor& x, const at::Tensor& positions) const {
  const int64_t half = static_cast<int64_t>(inv_freq_.size());
  DF_ASSERT(x.dim() >= 2 && x.size(-1) == 2 * half, "rope of {} values, table for {}", x.size(-1),
            2 * half);
  DF_ASSERT(positions.numel() * x.size(-2) * x.size(-1) == x.numel(), "positions={} numel={}",
            positions.numel(), x.numel());
  const at::Tensor inv = at::tensor(inv_freq_, at::kDouble);
  const at::Tensor angle = positions.reshape({-1, 1, 1}).to(at::kDouble) * inv;
  const at::Tensor cos = at::cos(angle).to(x.scalar_type());
  const at::Tensor sin = at::sin(angle).to(x.scalar_type());
  const at::Tensor flat = x.reshape({-1, x.size(-2), x.size(-1)});
  const at::Tensor a = flat.narrow(-1, 0, half), b = flat.narrow(-1, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1).reshape(x.sizes());
}

}  // namespace dflash::nn
