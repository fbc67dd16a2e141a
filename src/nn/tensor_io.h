// Files <-> tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "io/gguf.h"
#include "io/safetensors.h"
#include "nn/blocks.h"

namespace dflash::nn {

/// A tensor over the mapped bytes (copied only when misaligned); keeps `owner` alive. Read-only.
at::Tensor to_tensor(const io::TensorView& view, std::shared_ptr<const void> owner);

/// GGUF tensor as f32 (quantised types widened).
at::Tensor to_tensor(const io::GgufTensor& tensor);
/// The parts of a tensor whose type keeps blocks of 32 (codes as shaped, scales [..., B]); nothing
/// for other types.
std::optional<BlockWeight> to_blocks(const io::GgufTensor& tensor);

/// Contiguous CPU view of a tensor for the writer; `tensor` must outlive it.
io::TensorView to_view(const std::string& name, const at::Tensor& tensor);

void save_tensors(const std::filesystem::path& path,
                  const std::map<std::string, at::Tensor>& tensors,
                  const io::Metadata& metadata = {});
std::map<std::string, at::Tensor> load_tensors(const std::filesystem::path& path);

}  // namespace dflash::nn
