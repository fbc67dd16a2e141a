// SHA-256 (FIPS 180-4), so that fingerprints are the same on every machine and checkable by any
// tool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace dflash::io {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  /// 64 hexadecimal digits; ends the stream.
  std::string hex();

 private:
  void compress(const std::byte* block);

  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> block_;
  size_t filled_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace dflash::io
