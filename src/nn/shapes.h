// The one legend of shape suffixes, and the check at public entries.
//
//   T tokens of a packed row or context   R rows of a pass     N blocks      K slots of a block
//   D hidden size    F features = taps * D   I MLP width        V vocabulary
//   H query heads    G kv heads              E head dimension   O outputs
//
// Index tensors are int64. Masks: true = may attend.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

namespace dflash::nn {

/// Error naming `name`, the expected and the found shape; -1 matches any size.
void expect_shape(const at::Tensor& tensor, const std::vector<int64_t>& shape,
                  std::string_view name);

}  // namespace dflash::nn
