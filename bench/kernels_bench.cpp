// Speed of the packed products against reading as many bytes, and against ATen's bf16 linear.
// Weights are cycled through copies of some hundred MB, so they come from memory as in decoding.
// Prints a table: time of one call in microseconds, GB/s of weights, share of the plain read rate.
// For many rows: GFLOP/s beside at::linear's. DFLASH_ISA lowers the kernels, argument 1 the MB.
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/timer.h"
#include "nn/attention.h"
#include "nn/linear.h"

namespace {

using namespace dflash;

/// Seconds; of this thread alone when there is only one, so that a busy machine matters less.
double now() {
  timespec time;
  clock_gettime(nn::num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Time of one call that a fifth of the calls stay below: quiet moments of a busy machine count.
template <typename Call>
double microseconds(int64_t count, const Call& call) {
  std::vector<double> times;
  const Timer all;
  for (int round = 0; round < 2 || (all.seconds() < 0.3 && round < 50); ++round) {
    for (int64_t i = 0; i < count; ++i) {
      const double start = now();
      call(i);
      times.push_back(now() - start);
    }
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 5] * 1e6;
}

uint64_t read_all(const at::Tensor& bytes) {
  const auto* words = static_cast<const uint64_t*>(bytes.const_data_ptr());
  const int64_t count = bytes.nbytes() / 8;
  uint64_t sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

void measure(int64_t out, int64_t in, double megabytes) {
  const double bytes = static_cast<double>(out * in) * 2;
  const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(megabytes * 1e6 / bytes));
  std::vector<nn::Linear> packed;
  std::vector<at::Tensor> plain;
  const at::Tensor weight = at::randn({out, in}).to(at::kBFloat16);
  for (int64_t i = 0; i < count; ++i) {
    packed.emplace_back(weight, at::Tensor(), nn::Compute::kBF16);
    packed.back().pack();
    plain.push_back(weight.clone());
  }
  volatile uint64_t sink = 0;
  const double read = microseconds(count, [&](int64_t i) { sink = sink + read_all(plain[i]); });
  std::printf("%6ld x %5ld  read %8.1f us %5.1f GB/s\n", out, in, read, bytes / read / 1e3);
  for (const int64_t rows : {1, 8, 16, 64, 512}) {
    const at::Tensor x = at::randn({rows, in}), x16 = x.to(at::kBFloat16);
    const double own = microseconds(count, [&](int64_t i) { packed[i].forward(x); });
    const int64_t few = std::min<int64_t>(count, 20);
    const double aten = microseconds(few, [&](int64_t i) { at::linear(x16, plain[i]); });
    const double flop = 2.0 * static_cast<double>(rows * out * in);
    std::printf(
        "    R %4ld  %9.1f us  %5.1f GB/s  %5.2f of read  %7.1f GFLOP/s   at::linear %9.1f us\n",
        rows, own, bytes / own / 1e3, read / own, flop / own / 1e3, aten);
  }
}

void measure_attention(int64_t rows, int64_t context, nn::Compute storage) {
  nn::KvBuffer buffer(3, 64, storage);
  const at::Tensor kv = at::randn({context + rows, 3, 64});
  buffer.write(0, kv, kv);
  std::vector<nn::RowKeys> keys(rows);
  for (int64_t r = 0; r < rows; ++r) keys[r].ranges[0] = {&buffer, 0, context + r + 1};
  const at::Tensor q = at::randn({rows, 9, 64});
  const double time = microseconds(10, [&](int64_t) { nn::attend(q, keys); });
  std::printf("attention 9 heads of 64 over 3, %s: %4ld rows after %4ld keys  %9.1f us\n",
              std::string(nn::compute_name(storage)).c_str(), rows, context, time);
}

}  // namespace

int main(int argc, char** argv) {
  const c10::NoGradGuard no_grad;
  const double megabytes = argc > 1 ? std::atof(argv[1]) : 300;
  std::printf("kernels %s, %d threads\n", nn::kernel_name(nn::Compute::kBF16).c_str(),
              nn::num_threads());
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  measure(1536, 576, megabytes);
  measure(576, 1536, megabytes);
  measure(960, 576, megabytes);
  measure(49152, 576, megabytes);
  for (const nn::Compute storage : {nn::Compute::kF32, nn::Compute::kBF16}) {
    measure_attention(1, 500, storage);
    measure_attention(16, 500, storage);
    measure_attention(512, 0, storage);
  }
  return 0;
}
