// The rate at which this machine multiplies bf16 matrices of a step's own shapes.
#pragma once

#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <vector>

#include "base/timer.h"
#include "train_sizes.h"

namespace dflash {

/// Every round multiplies each shape once, as ATen's bf16 product does for such operands; between
/// two rounds a step may run, so that both meet the same machine.
class GemmRate {
 public:
  explicit GemmRate(const std::vector<StepProduct>& products) : products_(products) {
    for (const StepProduct& p : products) {
      a_.push_back(at::randn({p.m, p.k}, at::kFloat).to(at::kBFloat16));
      b_.push_back(at::randn({p.k, p.n}, at::kFloat).to(at::kBFloat16));
    }
    seconds_.resize(products.size());
  }

  void round() {
    for (size_t i = 0; i < products_.size(); ++i) {
      Timer timer;
      const at::Tensor c = at::mm(a_[i], b_[i]);
      seconds_[i].push_back(timer.seconds());
    }
  }

  /// Operations a second over all products at the median time of each.
  double rate() const {
    double operations = 0, seconds = 0;
    for (size_t i = 0; i < products_.size(); ++i) {
      std::vector<double> sorted = seconds_[i];
      std::sort(sorted.begin(), sorted.end());
      seconds += sorted[sorted.size() / 2] * static_cast<double>(products_[i].count);
      operations += products_[i].operations();
    }
    return operations / seconds;
  }

 private:
  std::vector<StepProduct> products_;
  std::vector<at::Tensor> a_, b_;
  std::vector<std::vector<double>> seconds_;
};

}  // namespace dflash
