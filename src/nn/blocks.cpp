#include "nn/blocks.h"

#include <ATen/ops/cat.h>

#include "base/error.h"

namespace dflash::nn {

at::Tensor BlockWeight::widen() const {
  std::vector<int64_t> shape = scale_OB.sizes().vec();
  shape.push_back(kBlockWidth);
  const at::Tensor codes = codes_OI.to(at::kFloat).reshape(shape);
  at::Tensor values = codes * scale_OB.unsqueeze(-1);
  if (least_OB.defined()) values += least_OB.unsqueeze(-1);
  return values.reshape(codes_OI.sizes());
}

std::optional<BlockWeight> joined(const std::vector<BlockWeight>& parts) {
  DF_ASSERT(!parts.empty(), "nothing to join");
  std::vector<at::Tensor> codes, scales, leasts;
  for (const BlockWeight& part : parts) {
    if (part.bits != parts[0].bits) return std::nullopt;
    if (part.least_OB.defined() != parts[0].least_OB.defined()) return std::nullopt;
    codes.push_back(part.codes_OI);
    scales.push_back(part.scale_OB);
    leasts.push_back(part.least_OB);
  }
  return BlockWeight{.bits = parts[0].bits,
                     .codes_OI = at::cat(codes),
                     .scale_OB = at::cat(scales),
                     .least_OB = leasts[0].defined() ? at::cat(leasts) : at::Tensor()};
}

}  // namespace dflash::nn
