#include "nn/compute.h"

#include <cpuid.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "base/error.h"

namespace dflash::nn {
namespace {

constexpr std::string_view kIsaNames[] = {"scalar", "avx2", "avx512", "avx512bf16", "amx"};

/// Linux hands out the tile registers on request only (arch_prctl, feature 18 = tile data).
bool request_amx() {
  constexpr int kArchReqXcompPerm = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tile = (d >> 24) & 1, bf16 = (d >> 22) & 1;
  return tile && bf16 && request_amx();
}

bool has_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && ((a >> 5) & 1);
}

Isa best_isa() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::kScalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return Isa::kAvx2;
  if (!has_avx512_bf16()) return Isa::kAvx512;
  return has_amx_bf16() ? Isa::kAmx : Isa::kAvx512Bf16;
}

Isa parse_isa(std::string_view name) {
  for (int i = 0; i < 5; ++i) {
    if (name == kIsaNames[i]) return static_cast<Isa>(i);
  }
  fail("DFLASH_ISA: expected scalar, avx2, avx512, avx512bf16 or amx, got '{}'", name);
}

Isa initial_isa() {
  const char* wanted = std::getenv("DFLASH_ISA");
  return wanted && *wanted ? std::min(parse_isa(wanted), hardware_isa()) : hardware_isa();
}

std::atomic<Isa>& current_isa() {
  static std::atomic<Isa> isa = initial_isa();
  return isa;
}

}  // namespace

std::string_view compute_name(Compute compute) {
  return compute == Compute::kF32 ? "f32" : "bf16";
}

Compute parse_compute(std::string_view name) {
  if (name == "f32") return Compute::kF32;
  if (name == "bf16") return Compute::kBF16;
  if (name == "auto") return default_compute();
  fail("compute: expected f32, bf16 or auto, got '{}'", name);
}

Compute default_compute() {
  return cpu_isa() >= Isa::kAvx512Bf16 ? Compute::kBF16 : Compute::kF32;
}

std::string_view isa_name(Isa isa) {
  return kIsaNames[static_cast<int>(isa)];
}

Isa hardware_isa() {
  static const Isa isa = best_isa();
  return isa;
}

Isa cpu_isa() {
  return current_isa();
}

void set_isa(Isa isa) {
  if (isa > hardware_isa()) fail("set_isa: this CPU has no {}", isa_name(isa));
  current_isa() = isa;
}

std::string kernel_name(Compute compute) {
  // Only the bf16 products have kernels of their own beyond AVX512.
  const Isa isa = compute == Compute::kF32 ? std::min(cpu_isa(), Isa::kAvx512) : cpu_isa();
  return fmt::format("{}-{}", isa_name(isa), compute_name(compute));
}

int num_threads() {
  return omp_get_max_threads();
}

}  // namespace dflash::nn
