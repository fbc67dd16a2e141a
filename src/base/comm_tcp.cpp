#include "base/comm_tcp.h"

#include <algorithm>

#include "base/error.h"
#include "base/mesh.h"

namespace dflash {
namespace {

constexpr size_t kChunkFloats = size_t{1} << 22;  // of a large sum at once

class TcpComm : public Comm {
 public:
  explicit TcpComm(const RankPlace& place) : mesh_(place) {}

  int rank() const override { return mesh_.rank(); }
  int world() const override { return mesh_.world(); }
  int64_t num_collectives() const override { return collectives_; }
  void leave(std::string_view why) noexcept override { mesh_.leave(why); }

 protected:
  std::vector<std::string> gather(CommKind kind, uint64_t count,
                                  const std::string& bytes) override {
    ++collectives_;
    const bool fixed = kind == CommKind::kSumF64 || kind == CommKind::kSumI64;
    std::vector<std::string> all(world());
    all[rank()] = bytes;
    mesh_.run({.kind = static_cast<uint16_t>(kind),
               .count = count,
               .out = [&](int) { return std::as_bytes(std::span(bytes)); },
               .room =
                   [&](int peer, uint64_t size) {
                     const bool fits = size <= kMaxGatherBytes && (!fixed || size == bytes.size());
                     if (!fits) mesh_.bad_size(peer, size);
                     all[peer].resize(size);
                     return std::as_writable_bytes(std::span(all[peer]));
                   }});
    return all;
  }

  void sum_floats(const std::vector<std::span<float>>& parts) override {
    ++collectives_;
    uint64_t total = 0;
    for (const auto& part : parts) total += part.size();
    for (uint64_t first = 0; first == 0 || first < total; first += kChunkFloats) {
      chunk_.resize(static_cast<size_t>(std::min<uint64_t>(kChunkFloats, total - first)));
      for_chunk(parts, first, [&](std::span<float> part, size_t at) {
        std::copy_n(part.data(), part.size(), chunk_.data() + at);
      });
      sum_chunk(total);
      for_chunk(parts, first, [&](std::span<float> part, size_t at) {
        std::copy_n(chunk_.data() + at, part.size(), part.data());
      });
    }
  }

 private:
  /// What of `parts`, one after the other, is in the chunk that begins at `first`, and where there.
  template <typename Work>
  void for_chunk(const std::vector<std::span<float>>& parts, uint64_t first, const Work& work) {
    uint64_t begin = 0;
    for (const auto& part : parts) {
      const uint64_t from = std::max(first, begin),
                     to = std::min(first + chunk_.size(), begin + part.size());
      if (from < to) work(part.subspan(from - begin, to - from), from - first);
      begin += part.size();
    }
  }

  /// The piece of the chunk that `owner` adds up.
  std::span<float> share(int owner) {
    const auto ranks = static_cast<size_t>(world());
    const size_t begin = chunk_.size() * owner / ranks, end = chunk_.size() * (owner + 1) / ranks;
    return std::span(chunk_).subspan(begin, end - begin);
  }

  void sum_chunk(uint64_t total) {
    const auto kind = static_cast<uint16_t>(CommKind::kSumF32);
    const std::span<float> mine = share(rank());
    theirs_.resize(mine.size() * static_cast<size_t>(world()));
    const auto of_rank = [&](int r) {
      return r == rank() ? mine : std::span(theirs_).subspan(r * mine.size(), mine.size());
    };
    mesh_.run({kind, total, [&](int peer) { return std::as_bytes(share(peer)); },
               [&](int peer, uint64_t size) { return exactly(of_rank(peer), peer, size); }});
    sum_.assign(of_rank(0).begin(), of_rank(0).end());
    for (int r = 1; r < world(); ++r) {
      const float* from = of_rank(r).data();
      for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += from[i];
    }
    std::copy(sum_.begin(), sum_.end(), mine.begin());
    mesh_.run({kind, total, [&](int) { return std::as_bytes(mine); },
               [&](int peer, uint64_t size) { return exactly(share(peer), peer, size); }});
  }

  std::span<std::byte> exactly(std::span<float> room, int peer, uint64_t size) {
    if (size != room.size_bytes()) mesh_.bad_size(peer, size);
    return std::as_writable_bytes(room);
  }

  Mesh mesh_;
  int64_t collectives_ = 0;
  std::vector<float> chunk_, theirs_, sum_;
};

}  // namespace

std::unique_ptr<Comm> join_ranks(const RankPlace& place) {
  DF_ASSERT(place.rank >= 0 && place.rank < place.world, "rank {} of {}", place.rank, place.world);
  return std::make_unique<TcpComm>(place);
}

}  // namespace dflash
