#include "train/kernels/rows.h"

#include "nn/compute.h"

namespace dflash::train::kernels {

const RowKernels& row_kernels() {
  static const RowKernels& chosen = nn::cpu_isa() >= nn::Isa::kAvx512 ? row_kernels_avx512()
                                    : nn::cpu_isa() >= nn::Isa::kAvx2 ? row_kernels_avx2()
                                                                      : row_kernels_generic();
  return chosen;
}

}  // namespace dflash::train::kernels
