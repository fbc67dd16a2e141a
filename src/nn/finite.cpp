#include "nn/finite.h"

#include <ATen/ops/isfinite.h>

#include "base/error.h"

namespace dflash::nn {
namespace {

/// Whether any exponent is all ones.
template <typename Word>
bool any_special(const Word* words, int64_t count, Word exponent) {
  int special = 0;
#pragma omp parallel for simd schedule(static) if (count > (1 << 17)) reduction(| : special)
  for (int64_t i = 0; i < count; ++i) special |= (words[i] & exponent) == exponent ? 1 : 0;
  return special != 0;
}

}  // namespace

bool is_finite(const at::Tensor& values) {
  DF_ASSERT(values.is_contiguous(), "strides {}", fmt::join(values.strides(), ","));
  if (values.scalar_type() == at::kBFloat16) {
    return !any_special<uint16_t>(static_cast<const uint16_t*>(values.const_data_ptr()),
                                  values.numel(), 0x7f80);
  }
  DF_ASSERT(values.scalar_type() == at::kFloat, "{}", toString(values.scalar_type()));
  return !any_special<uint32_t>(static_cast<const uint32_t*>(values.const_data_ptr()),
                                values.numel(), 0x7f800000U);
}

void expect_finite(const at::Tensor& values, const std::string& where, const std::string& name) {
  if (!values.is_floating_point()) return;
  const bool fast = values.is_contiguous() &&
                    (values.scalar_type() == at::kBFloat16 || values.scalar_type() == at::kFloat);
  if (fast ? is_finite(values) : at::isfinite(values).all().item<bool>()) return;
  fail(
      "{}: {}: expected finite weights, got infinities or NaN\n  hint: training that diverged or a "
      "conversion that overflowed wrote them",
      where, name);
}

}  // namespace dflash::nn
