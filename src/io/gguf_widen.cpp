// Block formats to float, one block at a time, as ggml defines them. Not the path that decoding
// takes over quantised weights: that lives with the kernels.
#include <cstring>

#include "base/error.h"
#include "io/gguf_types.h"

namespace dflash::io {
namespace {

using Bytes = const uint8_t*;

uint16_t read_u16(Bytes p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

uint32_t read_u32(Bytes p) {
  return read_u16(p) | static_cast<uint32_t>(read_u16(p + 2)) << 16;
}

float read_half(Bytes p) {
  return half_to_float(read_u16(p));
}

void widen_f32(Bytes p, float* out) {
  std::memcpy(out, p, sizeof(float));
}

void widen_f16(Bytes p, float* out) {
  *out = read_half(p);
}

void widen_bf16(Bytes p, float* out) {
  *out = bfloat16_to_float(read_u16(p));
}

void widen_q8_0(Bytes p, float* out) {
  const float scale = read_half(p);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<int8_t>(p[2 + i]);
}

/// Low nibbles are elements 0 to 15, high nibbles 16 to 31; bit i of `high` is bit 4 of element i.
int quant(Bytes nibbles, uint32_t high, int i) {
  const int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
  return low | static_cast<int>(high >> i & 1) << 4;
}

void widen_q4_0(Bytes p, float* out) {
  const float scale = read_half(p);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(quant(p + 2, 0, i) - 8);
}

void widen_q4_1(Bytes p, float* out) {
  const float scale = read_half(p), least = read_half(p + 2);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(quant(p + 4, 0, i)) + least;
}

void widen_q5_0(Bytes p, float* out) {
  const float scale = read_half(p);
  const uint32_t high = read_u32(p + 2);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(quant(p + 6, high, i) - 16);
}

void widen_q5_1(Bytes p, float* out) {
  const float scale = read_half(p), least = read_half(p + 2);
  const uint32_t high = read_u32(p + 4);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(quant(p + 8, high, i)) + least;
}

struct ScaleAndMin {
  float scale, least;
};

/// Sub-block j of 8: twelve bytes hold 8 scales and 8 minima of 6 bits; the upper two bits of those
/// of sub-blocks 4 to 7 sit on top of those of 0 to 3.
ScaleAndMin scale_and_min(Bytes s, int j) {
  if (j < 4) return {static_cast<float>(s[j] & 63), static_cast<float>(s[j + 4] & 63)};
  return {static_cast<float>((s[j + 4] & 15) | (s[j - 4] >> 6) << 4),
          static_cast<float>((s[j + 4] >> 4) | (s[j] >> 6) << 4)};
}

/// Q4_K and Q5_K: 8 sub-blocks of 32; a pair of them shares 32 bytes of nibbles, low ones first.
/// `high` is nullptr or has bit j of byte i as bit 4 of element i of sub-block j.
void widen_k45(Bytes scales, Bytes high, Bytes nibbles, float d, float dmin, float* out) {
  for (int j = 0; j < 8; ++j) {
    const auto [scale, least] = scale_and_min(scales, j);
    const float step = d * scale, offset = dmin * least;
    for (int i = 0; i < 32; ++i) {
      const int low = nibbles[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
      const int bit = high == nullptr ? 0 : (high[i] >> j & 1) << 4;
      out[j * 32 + i] = step * static_cast<float>(low | bit) - offset;
    }
  }
}

void widen_q4_k(Bytes p, float* out) {
  widen_k45(p + 4, nullptr, p + 16, read_half(p), read_half(p + 2), out);
}

void widen_q5_k(Bytes p, float* out) {
  widen_k45(p + 4, p + 16, p + 48, read_half(p), read_half(p + 2), out);
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
    case GgufType::kQ4_0:
      return widen_q4_0;
    case GgufType::kQ4_1:
      return widen_q4_1;
    case GgufType::kQ5_0:
      return widen_q5_0;
    case GgufType::kQ5_1:
      return widen_q5_1;
    case GgufType::kQ8_0:
      return widen_q8_0;
    case GgufType::kQ4_K:
      return widen_q4_k;
    case GgufType::kQ5_K:
      return widen_q5_k;
    case GgufType::kQ6_K:
      return widen_q6_k;
    case GgufType::kI64:
      fail("a GGUF tensor of I64 values is no weight");
  }
  DF_ASSERT(false, "type={}", static_cast<uint32_t>(type));
}

}  // namespace

void widen_blocks(GgufType type, std::span<const std::byte> bytes, std::span<float> out) {
  const GgufBlock block = gguf_block(type);
  const auto count = static_cast<int64_t>(out.size()) / block.elements;
  DF_ASSERT(count * block.elements == static_cast<int64_t>(out.size()) &&
                count * block.bytes == static_cast<int64_t>(bytes.size()),
            "type={} elements={} bytes={}", gguf_type_name(type), out.size(), bytes.size());
  const Widen widen = function_for(type);
  const auto* from = reinterpret_cast<Bytes>(bytes.data());
  for (int64_t i = 0; i < count; ++i) widen(from + i * block.bytes, &out[i * block.elements]);
}

}  // namespace dflash::io
