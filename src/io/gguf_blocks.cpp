#include "io/gguf_blocks.h"

#include "base/error.h"
#include "io/gguf_types.h"

namespace dflash::io {
namespace {

using Bytes = const uint8_t*;

uint32_t read_u32(Bytes p) {
  return read_u16(p) | static_cast<uint32_t>(read_u16(p + 2)) << 16;
}

/// Where the parts of one block of the file go; `least` may be null.
struct Out {
  int8_t* codes;
  float *scale, *least;
};

/// Low nibbles are elements 0 to 15, high nibbles 16 to 31; bit i of `high` is bit 4 of element i.
void split_nibbles(Bytes nibbles, uint32_t high, int offset, int8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    const int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
    codes[i] = static_cast<int8_t>((low | static_cast<int>(high >> i & 1) << 4) - offset);
  }
}

void split_q8_0(Bytes p, const Out& out) {
  out.scale[0] = read_half(p);
  for (int i = 0; i < 32; ++i) out.codes[i] = static_cast<int8_t>(p[2 + i]);
}

/// scale * (code - 8): the product is exact, so is its sum with -8 scale.
void split_q4_0(Bytes p, const Out& out) {
  out.scale[0] = read_half(p), out.least[0] = -8 * out.scale[0];
  split_nibbles(p + 2, 0, 0, out.codes);
}

void split_q4_1(Bytes p, const Out& out) {
  out.scale[0] = read_half(p), out.least[0] = read_half(p + 2);
  split_nibbles(p + 4, 0, 0, out.codes);
}

void split_q5_0(Bytes p, const Out& out) {
  out.scale[0] = read_half(p);
  split_nibbles(p + 6, read_u32(p + 2), 16, out.codes);
}

void split_q5_1(Bytes p, const Out& out) {
  out.scale[0] = read_half(p), out.least[0] = read_half(p + 2);
  split_nibbles(p + 8, read_u32(p + 4), 0, out.codes);
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
void split_k45(Bytes p, Bytes high, Bytes nibbles, const Out& out) {
  const float d = read_half(p), dmin = read_half(p + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, least] = scale_and_min(p + 4, j);
    out.scale[j] = d * scale, out.least[j] = -(dmin * least);
    for (int i = 0; i < 32; ++i) {
      const int low = nibbles[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
      const int bit = high == nullptr ? 0 : (high[i] >> j & 1) << 4;
      out.codes[j * 32 + i] = static_cast<int8_t>(low | bit);
    }
  }
}

void split_q4_k(Bytes p, const Out& out) {
  split_k45(p, nullptr, p + 16, out);
}

void split_q5_k(Bytes p, const Out& out) {
  split_k45(p, p + 16, p + 48, out);
}

struct Format {
  GgufType type;
  BlockKind kind;
  void (*split)(Bytes, const Out&);
};
constexpr Format kFormats[] = {
    {GgufType::kQ4_0, {4, true}, split_q4_0},  {GgufType::kQ4_1, {4, true}, split_q4_1},
    {GgufType::kQ5_0, {8, false}, split_q5_0}, {GgufType::kQ5_1, {8, true}, split_q5_1},
    {GgufType::kQ8_0, {8, false}, split_q8_0}, {GgufType::kQ4_K, {4, true}, split_q4_k},
    {GgufType::kQ5_K, {8, true}, split_q5_k}};

const Format* format_of(GgufType type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

}  // namespace

std::optional<BlockKind> block_kind(GgufType type) {
  const Format* format = format_of(type);
  return format ? std::optional(format->kind) : std::nullopt;
}

void split_blocks(GgufType type, std::span<const std::byte> bytes, const BlockParts& parts) {
  const Format* format = format_of(type);
  const GgufBlock block = gguf_block(type);
  const auto values = static_cast<int64_t>(parts.codes.size()), count = values / block.elements;
  const auto shared = static_cast<int64_t>(parts.scale.size());
  DF_ASSERT(format && count * block.elements == values && shared * kSharedWidth == values &&
                count * block.bytes == static_cast<int64_t>(bytes.size()) &&
                parts.least.size() == (format->kind.with_least ? parts.scale.size() : 0),
            "type={} values={} bytes={}", gguf_type_name(type), values, bytes.size());
  const int64_t scales = block.elements / kSharedWidth;
  const auto* from = reinterpret_cast<Bytes>(bytes.data());
  for (int64_t i = 0; i < count; ++i) {
    format->split(from + i * block.bytes,
                  {&parts.codes[i * block.elements], &parts.scale[i * scales],
                   parts.least.empty() ? nullptr : &parts.least[i * scales]});
  }
}

}  // namespace dflash::io
