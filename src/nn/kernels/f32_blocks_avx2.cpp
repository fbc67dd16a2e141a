#include "nn/kernels/block_products.h"
#include "nn/kernels/f32_blocks.h"

namespace dflash::nn::kernels {

void product_f32_blocks_avx2(const Product& p, const BlockFormat& format) {
  product_lanes(p, format);
}

}  // namespace dflash::nn::kernels
