// Memory for packed weights: one after the other in large pieces backed by huge pages, so that a
// pass over a model reads memory front to back with few page walks.
#pragma once

#include <cstddef>
#include <memory>

namespace dflash::nn::kernels {

/// 64-byte aligned, undefined contents. A piece is freed with the last weight inside it.
std::shared_ptr<void> allocate_weights(size_t bytes);

}  // namespace dflash::nn::kernels
