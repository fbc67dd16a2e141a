#include "nn/shapes.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace dflash::nn {

void expect_shape(const at::Tensor& tensor, const std::vector<int64_t>& shape,
                  std::string_view name) {
  bool same = tensor.defined() && tensor.dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; same && i < shape.size(); ++i) {
    same = shape[i] < 0 || tensor.size(static_cast<int64_t>(i)) == shape[i];
  }
  if (same) return;
  const std::string found =
      tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")) : "undefined";
  fail("shape of {}: expected [{}] (-1: any), got {}", name, fmt::join(shape, ", "), found);
}

}  // namespace dflash::nn
