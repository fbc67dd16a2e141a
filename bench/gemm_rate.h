// The rate at which this machine multiplies matrices of a step's own shapes.
#pragma once

#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <vector>

#include "base/timer.h"
#include "common.h"
#include "nn/gemm_bf16.h"
#include "train_sizes.h"

namespace dflash {

/// Every round multiplies each shape once as ATen's product does, and in bf16 once by our tiles
/// from packed operands; the faster counts. Between two rounds a step may run, so that both meet
/// the same machine.
class GemmRate {
 public:
  GemmRate(const std::vector<StepProduct>& products, nn::Compute compute)
      : products_(products), tiles_(nn::tile_products_supported(compute)) {
    const auto type = compute == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat;
    for (const StepProduct& p : products) {
      a_.push_back(at::randn({p.m, p.k}, at::kFloat).to(type));
      b_.push_back(at::randn({p.k, p.n}, at::kFloat).to(type));
      if (tiles_) {
        left_.push_back(nn::left_operand(a_.back()));
        right_.push_back(nn::right_operand(b_.back()));
      }
    }
    seconds_.resize(products.size());
    tile_seconds_.resize(products.size());
  }

  void round() {
    for (size_t i = 0; i < products_.size(); ++i) {
      Timer timer;
      at::Tensor c = at::mm(a_[i], b_[i]);
      seconds_[i].push_back(timer.seconds());
      if (!tiles_) continue;
      c = at::empty({products_[i].m, products_[i].n}, at::kFloat);
      timer.restart();
      nn::multiply_tiles(left_[i], right_[i], nn::Into::kSet, c);
      tile_seconds_[i].push_back(timer.seconds());
    }
  }

  /// Operations a second over all products at the median time of each.
  double rate() const {
    double operations = 0, seconds = 0;
    for (size_t i = 0; i < products_.size(); ++i) {
      double least = median(seconds_[i]);
      if (tiles_) least = std::min(least, median(tile_seconds_[i]));
      seconds += least * static_cast<double>(products_[i].count);
      operations += products_[i].operations();
    }
    return operations / seconds;
  }

 private:
  std::vector<StepProduct> products_;
  const bool tiles_;
  std::vector<at::Tensor> a_, b_;
  std::vector<nn::TileOperand> left_, right_;
  std::vector<std::vector<double>> seconds_, tile_seconds_;
};

}  // namespace dflash
