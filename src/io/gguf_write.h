// GGUF v3 writer: what it writes, ggml's reader and ours accept. Layout: LIBTORCH.md 7.2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "io/gguf.h"

namespace dflash::io {

/// The types that readers of GGUF files expect: counts and ids are u32, lists of them i32.
using GgufValue = std::variant<bool, uint32_t, float, std::string, std::vector<bool>,
                               std::vector<int32_t>, std::vector<float>, std::vector<std::string>>;

struct GgufEntry {
  std::string key;
  GgufValue value;
};

/// Values of all keys that start with `prefix` as a file holds them, ready to be written again.
/// Error: an integer that does not fit.
std::vector<GgufEntry> copy_entries(const GgufFile& file, std::string_view prefix);

/// Writes atomically, tensors in the given order. Error: a key or name twice, bytes that do not
/// match shape and type, disk full.
void write_gguf(const std::filesystem::path& path, const std::vector<GgufEntry>& entries,
                const std::vector<GgufTensor>& tensors);

}  // namespace dflash::io
