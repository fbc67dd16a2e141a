// Values that are no numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dflash::nn {

/// Whether no value is infinite or NaN; f32 or bf16, contiguous: one pass over the exponents.
bool is_finite(const at::Tensor& values);

/// Error that names the file and the tensor when a value of a floating type is infinite or NaN.
void expect_finite(const at::Tensor& values, const std::string& where, const std::string& name);

}  // namespace dflash::nn
