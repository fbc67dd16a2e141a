// Little-endian reading with an end: every length is compared with what is left before it is used.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace dflash::io {

class ByteCursor {
 public:
  /// `where` names the file in errors.
  ByteCursor(std::span<const std::byte> bytes, std::string where)
      : bytes_(bytes), where_(std::move(where)) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }
  const std::string& where() const { return where_; }

  /// Error unless `count` items of at least `item_bytes` each can still follow.
  void require(uint64_t count, uint64_t item_bytes, std::string_view what) const {
    if (count > remaining() / item_bytes) {
      fail(
          "damaged file: {}: {} at byte {}: expected {} of at least {} bytes, only {} bytes are "
          "left\n  hint: the file was cut short; fetch or write it again",
          where_, what, position_, count, item_bytes, remaining());
    }
  }

  template <typename T>
  T read(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    require(1, sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  /// A view of the next `size` bytes as text.
  std::string_view text(uint64_t size, std::string_view what) {
    require(size, 1, what);
    const auto* start = reinterpret_cast<const char*>(bytes_.data() + position_);
    position_ += size;
    return {start, static_cast<size_t>(size)};
  }

 private:
  std::span<const std::byte> bytes_;
  std::string where_;
  uint64_t position_ = 0;
};

}  // namespace dflash::io
