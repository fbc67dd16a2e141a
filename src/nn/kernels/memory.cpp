#include "nn/kernels/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace dflash::nn::kernels {
namespace {

constexpr size_t kHugePage = 2 << 20, kPiece = 32 << 20, kLine = 64;

/// One mapping; alive while `owner` or any weight inside is.
struct Piece {
  std::shared_ptr<std::byte> owner;
  size_t used = 0, size = 0;
};

Piece map_piece(size_t bytes) {
  const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage, mapped = size + kHugePage;
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  const size_t shift = (kHugePage - reinterpret_cast<uintptr_t>(raw) % kHugePage) % kHugePage;
  auto* start = static_cast<std::byte*>(raw) + shift;
  madvise(start, size, MADV_HUGEPAGE);  // a wish; small pages are only slower
  return {std::shared_ptr<std::byte>(start, [raw, mapped](void*) { munmap(raw, mapped); }), 0,
          size};
}

}  // namespace

std::shared_ptr<void> allocate_weights(size_t bytes) {
  static std::mutex mutex;
  static Piece piece;
  const std::lock_guard lock(mutex);
  bytes = (bytes + kLine - 1) / kLine * kLine;
  if (piece.used + bytes > piece.size) piece = map_piece(std::max(bytes, kPiece));
  std::byte* at = piece.owner.get() + piece.used;
  piece.used += bytes;
  return {piece.owner, at};
}

}  // namespace dflash::nn::kernels
