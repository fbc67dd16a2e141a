// ggml's tensor types: names and sizes of all that are known, and how the supported ones widen to
// float. Layouts: LIBTORCH.md 7.2.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/gguf.h"

namespace dflash::io {

/// Elements and bytes of one block (a plain type is a block of one).
struct GgufBlock {
  int64_t elements = 1;
  int64_t bytes = 0;
};

/// The supported type of this id, or nothing.
std::optional<GgufType> gguf_type_from_id(uint32_t id);
/// "Q3_K (11)"; "(99)" when nobody knows it.
std::string describe_gguf_type(uint32_t id);
/// "F32, F16, ...": the supported ones, for messages.
std::string gguf_type_names();

GgufBlock gguf_block(GgufType type);

/// Widens whole blocks: out.size() elements from their bytes.
void widen_blocks(GgufType type, std::span<const std::byte> bytes, std::span<float> out);

/// Little-endian, from any address.
uint16_t read_u16(const uint8_t* bytes);
float read_half(const uint8_t* bytes);
float half_to_float(uint16_t bits);
float bfloat16_to_float(uint16_t bits);

}  // namespace dflash::io
