#include "io/fingerprint.h"

namespace dflash::io {
namespace {

constexpr size_t kPieces = 16, kPieceBytes = 4096;

}  // namespace

Fingerprint& Fingerprint::add_bytes(std::span<const std::byte> bytes) {
  const uint64_t size = bytes.size();
  hash_.update(std::as_bytes(std::span(&size, 1)));
  hash_.update(bytes);
  return *this;
}

Fingerprint& Fingerprint::add(std::string_view text) {
  return add_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

Fingerprint& Fingerprint::add(int64_t number) {
  return add_bytes(std::as_bytes(std::span(&number, 1)));
}

Fingerprint& Fingerprint::add(const std::vector<std::string>& texts) {
  add(static_cast<int64_t>(texts.size()));
  for (const std::string& text : texts) add(text);
  return *this;
}

Fingerprint& Fingerprint::add_sampled(std::span<const std::byte> bytes) {
  if (bytes.size() <= kPieces * kPieceBytes) return add_bytes(bytes);
  add(static_cast<int64_t>(bytes.size()));
  const size_t last = bytes.size() - kPieceBytes;
  for (size_t i = 0; i < kPieces; ++i) {
    const size_t start = i == kPieces - 1 ? last : last / (kPieces - 1) * i;
    add_bytes(bytes.subspan(start, kPieceBytes));
  }
  return *this;
}

Fingerprint& Fingerprint::add_tensor(std::string_view name, std::string_view type,
                                     std::span<const int64_t> shape,
                                     std::span<const std::byte> bytes) {
  add(name).add(type);
  return add_bytes(std::as_bytes(shape)).add_sampled(bytes);
}

std::string Fingerprint::hex() const {
  Sha256 copy = hash_;
  return copy.hex().substr(0, 32);
}

}  // namespace dflash::io
