// What a model computes in, and which kernels this CPU runs; chosen once, named in every header.
#pragma once

#include <string>
#include <string_view>

namespace dflash::nn {

enum class Compute { kF32, kBF16 };

std::string_view compute_name(Compute compute);      // "f32", "bf16"
Compute parse_compute(std::string_view name);        // "f32", "bf16", "auto"; Error otherwise
/// bf16 where AMX or AVX512-BF16 makes it fast, else f32.
Compute default_compute();

enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx };
/// The best the CPU has, lowered by DFLASH_ISA=scalar|avx2|avx512|avx512bf16|amx (tests).
Isa cpu_isa();
/// "amx-bf16", "avx512", ... for run headers.
std::string kernel_name(Compute compute);
/// Number of threads the kernels use (OMP_NUM_THREADS or all cores).
int num_threads();

}  // namespace dflash::nn
