// Typed vectors <-> the byte windows of safetensors files. Internal to data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"

namespace dflash::data {

template <typename T>
constexpr io::Dtype dtype_of() {
  if constexpr (std::is_same_v<T, uint8_t>) return io::Dtype::kU8;
  if constexpr (std::is_same_v<T, int32_t>) return io::Dtype::kI32;
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) return io::Dtype::kI64;
}

/// A one-dimensional tensor over `values`, which must outlive it.
template <typename T>
io::TensorView view_of(std::string name, const std::vector<T>& values) {
  return {std::move(name),
          dtype_of<T>(),
          {static_cast<int64_t>(values.size())},
          std::as_bytes(std::span(values))};
}

/// The values of a one-dimensional tensor. Error when type, rank or alignment is another.
template <typename T>
std::span<const T> values_of(const io::Checkpoint& file, std::string_view name) {
  const io::TensorView& view = file.get(name);
  if (view.dtype != dtype_of<T>() || view.shape.size() != 1) {
    fail("{}: {}: expected a vector of {}, got {} with {} dimensions", file.path().string(), name,
         io::dtype_name(dtype_of<T>()), io::dtype_name(view.dtype), view.shape.size());
  }
  if (reinterpret_cast<uintptr_t>(view.bytes.data()) % alignof(T) != 0) {
    fail("{}: {}: not aligned to {} bytes", file.path().string(), name, alignof(T));
  }
  return {reinterpret_cast<const T*>(view.bytes.data()), static_cast<size_t>(view.numel())};
}

/// Error unless offsets start at 0, never fall, have `documents` + 1 entries and end at `tokens`.
inline void check_offsets(const io::Checkpoint& file, std::span<const int64_t> offsets,
                          size_t documents, size_t tokens) {
  const auto bad = [&](std::string what) {
    fail("{}: offsets: {}\n  hint: the file is damaged; write it again", file.path().string(),
         what);
  };
  if (offsets.size() != documents + 1) {
    bad(fmt::format("expected {} entries, got {}", documents + 1, offsets.size()));
  }
  if (offsets.front() != 0) bad(fmt::format("expected 0 first, got {}", offsets.front()));
  for (size_t d = 0; d < documents; ++d) {
    if (offsets[d + 1] <= offsets[d]) {
      bad(fmt::format("document {} has {} tokens", d, offsets[d + 1] - offsets[d]));
    }
  }
  if (offsets.back() != static_cast<int64_t>(tokens)) {
    bad(fmt::format("expected {} last, got {}", tokens, offsets.back()));
  }
}

}  // namespace dflash::data
