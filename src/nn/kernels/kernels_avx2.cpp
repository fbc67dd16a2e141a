#include "nn/kernels/delta_kernels.h"
#include "nn/kernels/f32_blocks.h"
#include "nn/kernels/products.h"
#include "nn/kernels/row_kernels.h"

namespace dflash::nn::kernels {

const Kernels kAvx2Kernels = {.name = "avx2",
                              .enter = nothing,
                              .leave = nothing,
                              .packed_row_bytes = 4,
                              .pack_rows = pack_rows_widened,
                              .product_bf16 = product<Bf16Weights>,
                              .product_f32 = product<F32Weights>,
                              .product_f32_bf16 = product<Bf16WeightsOfFloats>,
                              .product_f32_blocks = product_f32_blocks_avx2,
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
