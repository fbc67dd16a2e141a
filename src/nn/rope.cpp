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

/// Yarn: pairs that turn often in the original context keep their frequency, pairs that turn less
/// than once are slowed by `factor`, with a ramp over the pair's number between.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& config, int64_t dim) : factor_(config.factor) {
    const auto pair_of = [&](double turns) {
      const double length = config.original_max_positions / (turns * 2 * std::numbers::pi);
      return static_cast<double>(dim) * std::log(length) / (2 * std::log(config.theta));
    };
    low_ = pair_of(config.beta_fast), high_ = pair_of(config.beta_slow);
    if (config.truncate) low_ = std::floor(low_), high_ = std::ceil(high_);
    low_ = std::max(low_, 0.0), high_ = std::min(high_, static_cast<double>(dim - 1));
    if (low_ == high_) high_ += 0.001;
  }
  double frequency(double inv, int64_t pair) const {
    const double slowed = std::clamp((static_cast<double>(pair) - low_) / (high_ - low_), 0.0, 1.0);
    return inv / factor_ * slowed + inv * (1 - slowed);
  }

 private:
  double factor_, low_ = 0, high_ = 0;
};

std::vector<double> frequencies(const RopeConfig& config, int64_t dim) {
  std::vector<double> out(static_cast<size_t>(dim / 2));
  const YarnRamp yarn(config, dim);
  for (int64_t f = 0; f < dim / 2; ++f) {
    double inv = std::pow(config.theta, -2.0 * static_cast<double>(f) / static_cast<double>(dim));
    if (config.scaling == "linear") inv /= config.factor;
    if (config.scaling == "llama3") inv = llama3_frequency(inv, config);
    if (config.scaling == "yarn") inv = yarn.frequency(inv, f);
    out[static_cast<size_t>(f)] = inv;
  }
  return out;
}

void check_rope(const RopeConfig& config, int64_t head_dim, int64_t rotary_dim) {
  if (head_dim <= 0 || head_dim % 2) {
    fail("rope: head_dim: expected a positive even number, got {}", head_dim);
  }
  if (rotary_dim < 2 || rotary_dim > head_dim || rotary_dim % 2) {
    fail("rope: rotated dimensions: expected an even number from 2 to {}, got {}", head_dim,
         rotary_dim);
  }
  constexpr std::string_view kKnown[] = {"default", "linear", "llama3", "yarn"};
  if (std::find(std::begin(kKnown), std::end(kKnown), config.scaling) == std::end(kKnown)) {
    fail("rope: scaling: expected one of {}, got '{}'", fmt::join(kKnown, ", "), config.scaling);
  }
  const size_t factors = config.frequency_factors.size();
  if (factors && static_cast<int64_t>(factors) != rotary_dim / 2) {
    fail("rope: frequency factors: expected {}, got {}", rotary_dim / 2, factors);
  }
}

double yarn_scale(double factor, double m) {
  return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1;
}

}  // namespace

double yarn_attention_factor(double factor) {
  return yarn_scale(factor, 1);
}

double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  return yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all_dim);
}

/// [positions, r]: cosines of a position, then its sines, rounded from f64. Grown by doubling;
/// readers keep the table that they began with.
class AngleCache {
 public:
  using Table = std::vector<float>;
  explicit AngleCache(double scale) : scale_(scale) {}

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

  void angles(int64_t position, const std::vector<double>& inv_freq, float* to) const {
    const size_t half = inv_freq.size();
    for (size_t f = 0; f < half; ++f) {
      const double angle = static_cast<double>(position) * inv_freq[f];
      to[f] = static_cast<float>(scale_ * std::cos(angle));
      to[half + f] = static_cast<float>(scale_ * std::sin(angle));
    }
  }

 private:
  double scale_;
  std::mutex mutex_;
  int64_t positions_ = 0;
  std::shared_ptr<const Table> table_;
};

Rope::Rope(const RopeConfig& config, int64_t head_dim) : config_(config), head_dim_(head_dim) {
  const int64_t rotary_dim = config.rotary_dim ? config.rotary_dim : head_dim;
  check_rope(config, head_dim, rotary_dim);
  inv_freq_ = frequencies(config, rotary_dim);
  for (size_t f = 0; f < config.frequency_factors.size(); ++f) {
    inv_freq_[f] /= config.frequency_factors[f];
  }
  cache_ = std::make_shared<AngleCache>(config.attention_factor);
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// cos and sin of every row, r floats a row: a window on the cache, or computed for far positions.
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
      cache.angles(pos[r], inv_freq, own_.data() + r * width_);
    }
  }
  const float* row(int64_t r) const {
    if (!own_.empty()) return own_.data() + r * width_;
    return table_->data() + positions_.const_data_ptr<int64_t>()[r] * width_;
  }
  int64_t rows() const { return positions_.numel(); }
  int64_t half() const { return width_ / 2; }

 private:
  at::Tensor positions_;
  int64_t width_;
  std::shared_ptr<const AngleCache::Table> table_;
  std::vector<float> own_;
};

at::Tensor copied(const at::Tensor& x) {
  at::Tensor y = at::empty(x.sizes(), at::kFloat);
  y.copy_(x);
  return y;
}

at::Tensor rotate(const at::Tensor& given, const Angles& angles, float sign) {
  const int64_t heads = given.size(-2), width = given.size(-1);
  const bool sliced = given.dim() == 3 && given.stride(2) == 1;
  const at::Tensor x = sliced ? given : given.contiguous();
  const int64_t head_stride = sliced ? x.stride(1) : width;
  const int64_t row_stride = sliced ? x.stride(0) : heads * width;
  at::Tensor y = angles.half() * 2 == width ? at::empty(given.sizes(), at::kFloat) : copied(x);
  const auto run = kernels::current().rope;
  parallel_rows(angles.rows(), 2 * heads * width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      run({.x = x.const_data_ptr<float>() + r * row_stride,
           .cos = angles.row(r),
           .sin = angles.row(r) + angles.half(),
           .heads = heads,
           .half = angles.half(),
           .x_stride = head_stride,
           .sign = sign,
           .y = y.mutable_data_ptr<float>() + r * heads * width,
           .y_stride = width});
    }
  });
  return y;
}

/// The transpose of a (scaled) rotation is the same by the opposite angle: its backward pass.
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
                      const std::vector<double>& inv_freq, double scale) {
  const int64_t half = static_cast<int64_t>(inv_freq.size());
  const at::Tensor inv = at::tensor(inv_freq, at::kDouble);
  const at::Tensor angle = positions.reshape({-1, 1, 1}).to(at::kDouble) * inv;
  const at::Tensor cos = at::cos(angle) * scale, sin = at::sin(angle) * scale;
  const at::Tensor flat = x.reshape({-1, x.size(-2), x.size(-1)});
  const at::Tensor a = flat.narrow(-1, 0, half), b = flat.narrow(-1, half, half);
  const at::Tensor rest = flat.narrow(-1, 2 * half, x.size(-1) - 2 * half);
  return at::cat({a * cos - b * sin, b * cos + a * sin, rest}, -1).reshape(x.sizes());
}

}  // namespace

at::Tensor Rope::apply(const at::Tensor& x, const at::Tensor& positions) const {
  DF_ASSERT(x.dim() >= 2 && x.size(-1) == head_dim_, "rope of {} values, made for {}", x.size(-1),
            head_dim_);
  DF_ASSERT(positions.numel() * x.size(-2) * x.size(-1) == x.numel(), "positions={} numel={}",
            positions.numel(), x.numel());
  if (x.scalar_type() == at::kDouble) {
    return rotate_f64(x, positions, inv_freq_, config_.attention_factor);
  }
  DF_ASSERT(x.scalar_type() == at::kFloat, "rope of {}", c10::toString(x.scalar_type()));
  auto angles = c10::make_intrusive<Angles>(*cache_, inv_freq_, positions);
  const bool graph = c10::GradMode::is_enabled() && x.requires_grad();
  return graph ? RotateFunction::apply(x, angles) : rotate(x, *angles, 1);
}

}  // namespace dflash::nn
