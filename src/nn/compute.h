// What a model computes in, and which kernels this CPU runs; chosen once, named in every header.
#pragma once

#include <string>
#include <string_view>

namespace dflash::nn {

enum class Compute { kF32, kBF16 };

std::string_view compute_name(Compute compute);  // "f32", "bf16"
Compute parse_compute(std::string_view name);    // "f32", "bf16", "auto"; Error otherwise
/// bf16 where AMX or AVX512-BF16 makes it fast, else f32.
Compute default_compute();

enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx };
std::string_view isa_name(Isa isa);  // "scalar", "avx2", "avx512", "avx512bf16", "amx"
/// The best the CPU has.
Isa hardware_isa();
/// What the kernels use: hardware_isa(), lowered by DFLASH_ISA=<isa_name> or set_isa.
Isa cpu_isa();
/// For tests and benchmarks. Error when the CPU lacks it. Packed weights stay valid.
void set_isa(Isa isa);
/// "amx-bf16", "avx512-f32", ... for run headers.
std::string kernel_name(Compute compute);
/// Number of threads the kernels use (OMP_NUM_THREADS or all cores).
int num_threads();

}  // namespace dflash::nn
