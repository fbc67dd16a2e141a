// The block formats whose values share a scale and an offset by 32: their parts, as ggml defines
// them. LIBTORCH.md 7.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "io/gguf.h"

namespace dflash::io {

constexpr int64_t kSharedWidth = 32;  // values that share a scale

struct BlockKind {
  int64_t bits = 0;         // 4: codes 0 to 15; 8: codes -128 to 127
  bool with_least = false;  // value = scale * code + least; else scale * code
};

/// Nothing for plain types, ids and Q6_K (whose scales are shared by 16).
std::optional<BlockKind> block_kind(GgufType type);

/// codes: one a value; scale and least: one a 32 values, least empty where the kind has none.
struct BlockParts {
  std::span<int8_t> codes;
  std::span<float> scale, least;
};
/// `type` has a block_kind, `bytes` are whole blocks of codes.size() values.
void split_blocks(GgufType type, std::span<const std::byte> bytes, const BlockParts& parts);

}  // namespace dflash::io
