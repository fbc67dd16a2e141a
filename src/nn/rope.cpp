#include "nn/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/sin.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cmath>
#include <mutex>
#include <numbers>

#include "base/error.h"
#include "nn/parallel_rows.h"

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

/// [positions, E]: cosines of a position, then its sines, rounded from f64. Grown by doubling;
/// readers keep the table that they began with.
class AngleCache {
 public:
  using Table = std::vector<float>;
  static constexpr int64_t kMostPositions = 1 << 18;  // beyond, angles are computed on the spot

  std::shared_ptr<const Table> at_least(int64_t positions, const std::vector<double>& inv_freq) {
    const std::lock_guard lock(mutex_);
    if (positions <= positions_) return table_;
    const int64_t half = static_cast<int64_t>(inv_freq.size());
    const int64_t grown = std::min(std::max({positions, 2 * positions_, int64_t{1024}}),
                                   std::max(positions, kMostPositions));
    auto table = std::make_shared<Table>(grown * 2 * half);
    for (int64_t p = 0; p < grown; ++p) angles(p, inv_freq, table->data() + p * 2 * half);
    table_ = table, positions_ = grown;
    return table_;
  }

  static void angles(int64_t position, const std::vector<double>& inv_freq, float* to) {
    const size_t half = inv_freq.size();
    for (size_t f = 0; f < half; ++f) {
      const double angle = static_cast<double>(position) * inv_freq[f];
      to[f] = static_cast<float>(std::cos(angle));
      to[half + f] = static_cast<float>(std::sin(angle));
    }
  }

 private:
  std::mutex mutex_;
  int64_t positions_ = 0;
  std::shared_ptr<const Table> table_;
};

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
  cache_ = std::make_shared<AngleCache>();
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// cos and sin of every row, E floats a row: a window on the cache, or computed for far positions.
class Angles : public torch::CustomClassHolder {
 public:
  Angles(AngleCache& cache, const std::vector<double>& inv_freq, const at::Tensor& positions)
      : positions_(positions.reshape({-1}).to(at::kLong).contiguous()),
        width_(2 * static_cast<int64_t>(inv_freq.size())) {
    const int64_t* pos = positions_.const_data_ptr<int64_t>();
    const int64_t rows = positions_.numel();
    const auto [low, high] = std::minmax_element(pos, pos + rows);
    if (rows == 0 || (*low >= 0 && *high < AngleCache::kMostPositions)) {
      table_ = cache.at_least(rows ? *high + 1 : 0, inv_freq);
      return;
    }
    own_.resize(rows * width_);
    for (int64_t r = 0; r < rows; ++r) {
      AngleCache::angles(pos[r], inv_freq, own_.data() + r * width_);
    }
  }
  const float* row(int64_t r) const {
    if (!own_.empty()) return own_.data() + r * width_;
    return table_->data() + positions_.const_data_ptr<int64_t>()[r] * width_;
  }
  int64_t rows() const { return positions_.numel(); }

 private:
  at::Tensor positions_;
  int64_t width_;
  std::shared_ptr<const AngleCache::Table> table_;
  std::vector<float> own_;
};

at::Tensor rotate(const at::Tensor& given, const Angles& angles, float sign) {
  const int64_t heads = given.size(-2), width = given.size(-1);
  const bool sliced = given.dim() == 3 && given.stride(2) == 1;
  const at::Tensor x = sliced ? given : given.contiguous();
  const int64_t head_stride = sliced ? x.stride(1) : width;
  const int64_t row_stride = sliced ? x.stride(0) : heads * width;
  at::Tensor y = at::empty(given.sizes(), at::kFloat);
  const auto run = kernels::current().rope;
  parallel_rows(angles.rows(), 2 * heads * width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      run({.x = x.const_data_ptr<float>() + r * row_stride,
           .cos = angles.row(r),
           .sin = angles.row(r) + width / 2,
           .heads = heads,
           .half = width / 2,
           .x_stride = head_stride,
           .sign = sign,
           .y = y.mutable_data_ptr<float>() + r * heads * width});
    }
  });
  return y;
}

/// The rotation is orthogonal: its backward pass is the rotation by the opposite angle.
struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static Variable forward(AutogradContext* ctx, const Variable& x,
                          const c10::intrusive_ptr<Angles>& angles) {
    ctx->saved_data["angles"] = c10::IValue::make_capsule(angles);
    return rotate(x, *angles, 1);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const auto held = ctx->saved_data["angles"].toCapsule();
    const auto& angles = static_cast<const Angles&>(*held);
    return {rotate(grad[0].to(at::kFloat), angles, -1), Variable()};
  }
};

/// f64, for gradient checks: plain ops.
at::Tensor rotate_f64(const at::Tensor& x, const at::Tensor& positions,
                      const std::vector<double>& inv_freq) {
  const int64_t half = static_cast<int64_t>(inv_freq.size());
  const at::Tensor inv = at::tensor(inv_freq, at::kDouble);
  const at::Tensor angle = positions.reshape({-1, 1, 1}).to(at::kDouble) * inv;
  const at::Tensor cos = at::cos(angle), sin = at::sin(angle);
  const at::Tensor flat = x.reshape({-1, x.size(-2), x.size(-1)});
  const at::Tensor a = flat.narrow(-1, 0, half), b = flat.narrow(-1, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1).reshape(x.sizes());
}

}  // namespace

at::Tensor Rope::apply(const at::Tensor& x, const at::Tensor& positions) const {
  const int64_t half = static_cast<int64_t>(inv_freq_.size());
  DF_ASSERT(x.dim() >= 2 && x.size(-1) == 2 * half, "rope of {} values, table for {}", x.size(-1),
            2 * half);
  DF_ASSERT(positions.numel() * x.size(-2) * x.size(-1) == x.numel(), "positions={} numel={}",
            positions.numel(), x.numel());
  if (x.scalar_type() == at::kDouble) return rotate_f64(x, positions, inv_freq_);
  DF_ASSERT(x.scalar_type() == at::kFloat, "rope of {}", c10::toString(x.scalar_type()));
  auto angles = c10::make_intrusive<Angles>(*cache_, inv_freq_, positions);
  const bool graph = c10::GradMode::is_enabled() && x.requires_grad();
  return graph ? RotateFunction::apply(x, angles) : rotate(x, *angles, 1);
}

}  // namespace dflash::nn
