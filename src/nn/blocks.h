// A weight matrix as the block formats of GGUF keep it: 32 consecutive values of a row share one
// scale and one offset. Kernels widen it to bf16 inside their products (nn/packed.h), which gives
// the bits of a weight that was widened when it was loaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace dflash::nn {

constexpr int64_t kBlockWidth = 32;

/// value[o, i] = scale[o, i / 32] * code[o, i] + least[o, i / 32], the product exact in f32
/// (of at most 24 bits, as in every format of GGUF).
struct BlockWeight {
  int64_t bits = 0;     // 4: codes 0 to 15; 8: codes -128 to 127
  at::Tensor codes_OI;  // int8
  at::Tensor scale_OB;  // f32, B = I / 32
  at::Tensor least_OB;  // f32; undefined where it is 0

  /// The values as f32 [O, I].
  at::Tensor widen() const;
  /// The same function of rows applied to all parts.
  template <typename Function>
  BlockWeight map(const Function& function) const {
    return {bits, function(codes_OI), function(scale_OB),
            least_OB.defined() ? function(least_OB) : least_OB};
  }
};

/// Rows one after the other; nothing when the parts are of different kinds (bits, least).
std::optional<BlockWeight> joined(const std::vector<BlockWeight>& parts);

}  // namespace dflash::nn
