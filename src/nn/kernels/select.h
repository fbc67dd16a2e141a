// The table of the instruction set in use (cpu_isa), and scratch memory for callers of kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nn/kernels/kernels.h"

namespace dflash::nn::kernels {

const Kernels& current();

/// At least `bytes`, 64-byte aligned, one buffer a thread and slot; valid until the same thread
/// asks for the same slot again. Contents are undefined.
void* scratch(int slot, size_t bytes);

/// [begin, end) of `total` items for thread `thread` of `threads`, in whole multiples of `grain`.
struct Share {
  int64_t begin, end;
};
inline Share share(int64_t total, int64_t grain, int thread, int threads) {
  const int64_t grains = (total + grain - 1) / grain;
  const int64_t begin = grains * thread / threads * grain;
  const int64_t end = grains * (thread + 1) / threads * grain;
  return {begin < total ? begin : total, end < total ? end : total};
}

}  // namespace dflash::nn::kernels
