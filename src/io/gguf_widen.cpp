// Block formats to float, one block at a time, as ggml defines them. Not the path that decoding
// takes over quantised weights: that lives with the kernels.
#include <cstring>
#include <vector>

#include "base/error.h"
#include "io/gguf_blocks.h"
#include "io/gguf_types.h"

namespace dflash::io {
namespace {

using Bytes = const uint8_t*;

void widen_f32(Bytes p, float* out) {
  std::memcpy(out, p, sizeof(float));
}

void widen_f16(Bytes p, float* out) {
  *out = read_half(p);
}

void widen_bf16(Bytes p, float* out) {
  *out = bfloat16_to_float(read_u16(p));
}

/// Two halves of 128; in each, group g of 32 takes a nibble of ql and two bits of qh.
void widen_q6_k(Bytes p, float* out) {
  const float d = read_half(p + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, group = i % 128 / 32, lane = i % 32;
    const int low = p[half * 64 + group % 2 * 32 + lane] >> (group / 2 * 4) & 15;
    const int high = p[128 + half * 32 + lane] >> (group * 2) & 3;
    const auto scale = static_cast<int8_t>(p[192 + i / 16]);
    out[i] = d * scale * static_cast<float>((low | high << 4) - 32);
  }
}

using Widen = void (*)(Bytes, float*);

Widen function_for(GgufType type) {
  switch (type) {
    case GgufType::kF32:
      return widen_f32;
    case GgufType::kF16:
      return widen_f16;
    case GgufType::kBF16:
      return widen_bf16;
    case GgufType::kQ6_K:
      return widen_q6_k;
    case GgufType::kI64:
      fail("a GGUF tensor of I64 values is no weight");
    default:
      DF_ASSERT(false, "type={}", static_cast<uint32_t>(type));
  }
}

void widen_kind(GgufType type, const BlockKind& kind, std::span<const std::byte> bytes,
                std::span<float> out) {
  const size_t count = out.size() / kSharedWidth;
  std::vector<int8_t> codes(out.size());
  std::vector<float> scale(count), least(kind.with_least ? count : 0);
  split_blocks(type, bytes, {codes, scale, least});
  for (size_t i = 0; i < out.size(); ++i) {
    const float value = scale[i / kSharedWidth] * static_cast<float>(codes[i]);
    out[i] = kind.with_least ? value + least[i / kSharedWidth] : value;
  }
}

}  // namespace

uint16_t read_u16(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}

float read_half(const uint8_t* bytes) {
  return half_to_float(read_u16(bytes));
}

void widen_blocks(GgufType type, std::span<const std::byte> bytes, std::span<float> out) {
  const GgufBlock block = gguf_block(type);
  const auto count = static_cast<int64_t>(out.size()) / block.elements;
  DF_ASSERT(count * block.elements == static_cast<int64_t>(out.size()) &&
                count * block.bytes == static_cast<int64_t>(bytes.size()),
            "type={} elements={} bytes={}", gguf_type_name(type), out.size(), bytes.size());
  if (const auto kind = block_kind(type)) return widen_kind(type, *kind, bytes, out);
  const Widen widen = function_for(type);
  const auto* from = reinterpret_cast<Bytes>(bytes.data());
  for (int64_t i = 0; i < count; ++i) widen(from + i * block.bytes, &out[i * block.elements]);
}

}  // namespace dflash::io
