// Rotary embedding, half-split pairs (f, f + E/2); angles in f32/f64, never in bf16. MODELS.md 1.3,
// 1.4: default and llama3 scaling.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dflash::nn {

struct RopeConfig {
  double theta = 10000.0;
  std::string scaling = "default";  // "default" or "llama3"
  double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
  double original_max_positions = 8192;
  /// One divisor a pair, applied last (GGUF stores llama3 scaling this way); empty = none.
  std::vector<double> frequency_factors;
};

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
  std::vector<double> inv_freq_;
  std::shared_ptr<AngleCache> cache_;
};

}  // namespace dflash::nn
