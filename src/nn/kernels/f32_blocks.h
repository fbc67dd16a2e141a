// Kernels::product_f32_blocks by instruction set, each in a file of its own: they are long to
// compile, and every set beyond AVX512 takes that of AVX512.
#pragma once

#include "nn/kernels/kernels.h"

namespace dflash::nn::kernels {

void product_f32_blocks_scalar(const Product& product, const BlockFormat& format);
void product_f32_blocks_avx2(const Product& product, const BlockFormat& format);
void product_f32_blocks_avx512(const Product& product, const BlockFormat& format);

}  // namespace dflash::nn::kernels
