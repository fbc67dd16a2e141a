// AVX512-BF16: pairs of bf16 multiplied and summed by one instruction.
#include "nn/kernels/delta_kernels.h"
#include "nn/kernels/f32_blocks.h"
#include "nn/kernels/packed_rows_bf16.h"
#include "nn/kernels/products.h"
#include "nn/kernels/row_kernels.h"

namespace dflash::nn::kernels {
namespace {

struct Bf16Dots {
  using Element = uint16_t;
  using Left = uint16_t;
  static constexpr int64_t kLeftStep = kTileBf16, kStepsAtOnce = 8;
  static const uint16_t* left(const Product& p, int64_t row) {
    return static_cast<const uint16_t*>(p.a) + (row / kTile) * p.steps * kTileBf16 +
           (row % kTile) * kStepK;
  }
  template <int Rows, int Tiles>
  static void step(const uint16_t* const* a, int64_t k, const uint16_t* b, int64_t tile_stride,
                   F (&sum)[Rows][Tiles]) {
    for (int pair = 0; pair < kStepK / 2; ++pair, k += 2) {
      for (int t = 0; t < Tiles; ++t) {
        const __m512bh weight =
            (__m512bh)_mm512_loadu_si512(b + t * tile_stride + pair * 2 * kTile);
        for (int r = 0; r < Rows; ++r) {
          int32_t both;
          __builtin_memcpy(&both, a[r] + k, sizeof both);
          const __m512bh value = (__m512bh)_mm512_set1_epi32(both);
          sum[r][t] = (F)_mm512_dpbf16_ps((__m512)sum[r][t], value, weight);
        }
      }
    }
  }
};

}  // namespace

const Kernels kAvx512Bf16Kernels = {.name = "avx512bf16",
                                    .enter = nothing,
                                    .leave = nothing,
                                    .packed_row_bytes = 2,
                                    .pack_rows = pack_rows_bf16,
                                    .product_bf16 = product<Bf16Dots>,
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
