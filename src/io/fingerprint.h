// Short names for "the same thing": of a target, a tokenizer, a template. Every part is hashed with
// its length, so parts cannot run into each other. Stable across machines and versions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/sha256.h"

namespace dflash::io {

class Fingerprint {
 public:
  /// `kind` separates fingerprints of different things ("target", "tokenizer").
  explicit Fingerprint(std::string_view kind) { add(kind); }

  Fingerprint& add(std::string_view text);
  Fingerprint& add(int64_t number);
  Fingerprint& add(const std::vector<std::string>& texts);
  Fingerprint& add_bytes(std::span<const std::byte> bytes);
  /// All bytes up to 64 KiB; of larger ones the size and sixteen pieces of 4 KiB, evenly spaced
  /// from the first byte to the last. Seconds for a model of 54 GB.
  Fingerprint& add_sampled(std::span<const std::byte> bytes);
  /// Name, type, shape and a sample of the bytes.
  Fingerprint& add_tensor(std::string_view name, std::string_view type,
                          std::span<const int64_t> shape, std::span<const std::byte> bytes);

  /// 32 hexadecimal digits (the first half of a SHA-256) of what was added so far.
  std::string hex() const;

 private:
  Sha256 hash_;
};

}  // namespace dflash::io
