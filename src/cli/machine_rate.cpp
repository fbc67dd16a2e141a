#include "cli/machine_rate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/timer.h"
#include "plan/operations.h"

namespace dflash::cli {
namespace {

constexpr int64_t kLargest = 2048;
constexpr int64_t kCopied = 64 << 20;
constexpr double kEnoughSeconds = 0.15;

/// Seconds of the fastest call; at least three, and for about kEnoughSeconds.
template <typename Work>
double best_seconds(const Work& work) {
  double best = 1e30;
  const Timer all;
  for (int i = 0; i < 3 || all.seconds() < kEnoughSeconds; ++i) {
    const Timer one;
    work();
    best = std::min(best, one.seconds());
  }
  return best;
}

/// kB that /proc/self/status says of `key`.
int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  fail("/proc/self/status: no {}", key);
}

}  // namespace

plan::Rates measure_rates(const plan::DrafterShape& drafter, const plan::StepShape& step,
                          nn::Compute compute) {
  const auto type = compute == nn::Compute::kBF16 ? at::kBFloat16 : at::kFloat;
  const plan::Product product{.m = std::min(step.pass_anchors * drafter.block_size, kLargest),
                              .n = std::min(2 * drafter.intermediate_size, kLargest),
                              .k = std::min(drafter.hidden_size, kLargest)};
  const at::Tensor a = at::randn({product.m, product.k}, at::kFloat).to(type);
  const at::Tensor b = at::randn({product.n, product.k}, at::kFloat).to(type).t();
  const double gemm = best_seconds([&] { at::mm(a, b); });
  const at::Tensor from = at::ones({kCopied / 4}, at::kFloat), to = at::empty_like(from);
  const double copy = best_seconds([&] { to.copy_(from); });
  return {.gflops = product.operations() / gemm / 1e9,
          .gbs = 2.0 * static_cast<double>(kCopied) / copy / 1e9,
          .measured = true};
}

int64_t program_bytes() {
  const int64_t before = status_bytes("RssAnon");
  const at::Tensor a = at::ones({64, 64}, at::kFloat);
  at::mm(a, a);  // pages of the libraries that every product needs
  return before + status_bytes("RssFile");
}

}  // namespace dflash::cli
