#include "nn/kernels/select.h"

#include <cstdlib>
#include <new>

#include "nn/compute.h"

namespace dflash::nn::kernels {

const Kernels& current() {
  switch (cpu_isa()) {
    case Isa::kAmx:
      return kAmxKernels;
    case Isa::kAvx512Bf16:
      return kAvx512Bf16Kernels;
    case Isa::kAvx512:
      return kAvx512Kernels;
    case Isa::kAvx2:
      return kAvx2Kernels;
    case Isa::kScalar:
      break;
  }
  return kScalarKernels;
}

namespace {

struct Buffer {
  void* data = nullptr;
  size_t size = 0;
  ~Buffer() { std::free(data); }
};

}  // namespace

void* scratch(int slot, size_t bytes) {
  constexpr int kSlots = 11;  // packed.cpp 0-1 and 10, attention.cpp 2-9
  thread_local Buffer buffers[kSlots];
  Buffer& buffer = buffers[slot];
  if (buffer.size < bytes) {
    std::free(buffer.data);
    buffer.size = (bytes + bytes / 2 + 4095) / 4096 * 4096;
    buffer.data = std::aligned_alloc(4096, buffer.size);
    if (!buffer.data) throw std::bad_alloc();
  }
  return buffer.data;
}

}  // namespace dflash::nn::kernels
