// A named, typed, shaped window on bytes that somebody else owns (a mapped file, a buffer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dflash::io {

enum class Dtype { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

/// Bytes of one element.
int64_t dtype_bytes(Dtype dtype);
/// The safetensors spelling: "F32", "BF16", ...
std::string_view dtype_name(Dtype dtype);
/// The inverse; nothing for a dtype that is not supported.
std::optional<Dtype> dtype_from_name(std::string_view name);
/// All supported spellings, for messages: "F64, F32, ...".
std::string dtype_names();

struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;  // row-major, outermost first
  std::span<const std::byte> bytes;

  int64_t numel() const;
};

}  // namespace dflash::io
