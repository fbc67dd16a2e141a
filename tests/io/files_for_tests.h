// Hand-made safetensors and GGUF bytes, so that tests can break any field.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace dflash::testing {

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

/// Header text and data bytes as a safetensors file.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return raw<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

inline std::string gguf_text(std::string_view text) {
  return raw<uint64_t>(text.size()) + std::string(text);
}

inline std::string gguf_u32(std::string_view key, uint32_t value) {
  return gguf_text(key) + raw<uint32_t>(4) + raw(value);
}

/// One tensor info of the list.
inline std::string gguf_info(std::string_view name, std::initializer_list<uint64_t> dims,
                             uint32_t type, uint64_t offset) {
  std::string info = gguf_text(name) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) info += raw(dim);
  return info + raw(type) + raw(offset);
}

inline std::string gguf_head(uint64_t num_tensors, uint64_t num_keys, uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(num_tensors) + raw(num_keys);
}

/// Pads the header to `alignment`, then adds the data.
inline std::string gguf_bytes(std::string header, std::string_view data, size_t alignment = 32) {
  header.resize((header.size() + alignment - 1) / alignment * alignment, '\0');
  return header + std::string(data);
}

}  // namespace dflash::testing
