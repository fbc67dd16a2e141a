// AMX: 16 rows x 32 k times 32 k x 16 columns by one instruction. 16 rows cost what one row costs,
// so few rows run at the speed at which memory delivers the weights.
#include "nn/kernels/amx_products.h"
#include "nn/kernels/amx_tiles.h"
#include "nn/kernels/block_products_amx.h"
#include "nn/kernels/delta_kernels.h"
#include "nn/kernels/f32_blocks.h"
#include "nn/kernels/packed_rows_bf16.h"
#include "nn/kernels/products.h"
#include "nn/kernels/row_kernels.h"

namespace dflash::nn::kernels {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

void enter() {
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.row_bytes[t] = 64, config.rows[t] = 16;
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

void leave() {
  asm volatile("tilerelease" ::: "memory");
}

}  // namespace

const Kernels kAmxKernels = {.name = "amx",
                             .enter = enter,
                             .leave = leave,
                             .packed_row_bytes = 2,
                             .pack_rows = pack_rows_bf16,
                             .product_bf16 = product_tiles,
                             .product_blocks = product_blocks,
                             .pack_columns = pack_columns,
                             .product_f32 = product<F32Weights>,
                             .product_f32_bf16 = product<Bf16WeightsOfFloats>,
                             .product_f32_blocks = product_f32_blocks_avx512,
                             .softmax_row = softmax_row,
                             .merge_rows = merge_rows,
                             .argmax_row = argmax_row,
                             .norm = norm,
                             .norm_backward = norm_backward,
                             .swiglu = swiglu,
                             .swiglu_backward = swiglu_backward,
                             .rope = rope,
                             .gate_row = gate_row,
                             .conv_silu = conv_silu,
                             .delta_rule = delta_rule};

}  // namespace dflash::nn::kernels
