// What travels between two ranks: frames of a fixed head and bytes. Little-endian, since ranks are
// of one kind of machine.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/comm.h"

namespace dflash {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr uint32_t kFrameMagic = 0x31524644;             // "DFR1"
constexpr uint16_t kLastWords = 100, kRoster = 101;      // kinds of frame beside CommKind
constexpr uint64_t kMaxTextBytes = 64 << 10;             // of last words
constexpr uint64_t kMaxGatherBytes = uint64_t{1} << 28;  // of one rank in a gather

struct FrameHead {
  uint32_t magic = kFrameMagic;
  uint16_t kind = 0, unused = 0;
  uint64_t sequence = 0;  // of the exchange
  uint64_t count = 0;     // values of the whole collective
  uint64_t bytes = 0;     // that follow
};
static_assert(sizeof(FrameHead) == 32);

/// The first bytes on every connection.
struct Hello {
  uint32_t magic = kFrameMagic, rank = 0, world = 0, port = 0;  // port: where this rank listens
  char address[64] = {}, token[64] = {};
};
static_assert(sizeof(Hello) == 144);

/// Where a rank listens, as rank 0 tells the others.
struct RosterEntry {
  char address[64] = {};
  uint32_t port = 0, unused = 0;
};

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// A text of a fixed field, whether it ends in 0 or not.
template <size_t N>
std::string field_text(const char (&field)[N]) {
  return {field, ::strnlen(field, N)};
}

template <size_t N>
void set_field(char (&field)[N], std::string_view text) {
  std::memcpy(field, text.data(), std::min(N, text.size()));
}

/// "all_reduce of 120 floats".
std::string describe_frame(uint16_t kind, uint64_t count);

}  // namespace dflash
