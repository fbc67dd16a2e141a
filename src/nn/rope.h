// Rotary embedding, half-split pairs (f, f + r/2) of the first r dimensions of a head (r = E unless
// said otherwise); angles in f32/f64, never in bf16. MODELS.md 1.3, 1.4: default, linear, llama3
// and yarn scaling. All depend on the position alone: a rule that looks at the length of the
// sequence ("dynamic") would change rows that are already cached.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dflash::nn {

struct RopeConfig {
  double theta = 10000.0;
  std::string scaling = "default";  // "default", "linear", "llama3", "yarn"
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn: whole bounds of the ramp
  double attention_factor = 1.0;                         // of cosines and sines; yarn
  double original_max_positions = 8192;                  // llama3, yarn
  int64_t rotary_dim = 0;  // leading dimensions of a head that are rotated; 0 = all
  /// One divisor a pair, applied last (GGUF stores llama3 scaling this way); empty = none.
  std::vector<double> frequency_factors;
};

/// Yarn's attention factor where none is given: 1 + 0.1 m ln(factor), or the quotient of two.
double yarn_attention_factor(double factor);
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

class AngleCache;  // cosines and sines by position

class Rope {
 public:
  Rope() = default;
  Rope(const RopeConfig& config, int64_t head_dim);

  /// x [..., heads, E] f32, positions int64 with one entry per leading row -> rotated copy.
  /// Differentiable in x. Safe to call from several threads.
  at::Tensor apply(const at::Tensor& x, const at::Tensor& positions) const;

  const std::vector<double>& inverse_frequencies() const { return inv_freq_; }
  const RopeConfig& config() const { return config_; }

 private:
  RopeConfig config_;
  int64_t head_dim_ = 0;
  std::vector<double> inv_freq_;  // rotary_dim / 2
  std::shared_ptr<AngleCache> cache_;
};

}  // namespace dflash::nn
