// The ranks of one run: processes that take shares of the same work and add up what they found.
// All call the same collectives in the same order; every result is the same to the bit on every
// rank, and in every run with as many ranks. Here is what they can do together; how bytes travel is
// comm_tcp.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dflash {

enum class CommKind : uint16_t { kSumF32 = 1, kSumF64, kSumI64, kBroadcast, kGather, kBarrier };

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  bool leads() const { return rank() == 0; }
  bool alone() const { return world() == 1; }

  /// Adds up over the ranks, in the order of the ranks, in place. `parts` count as one vector.
  void all_reduce_sum(const std::vector<std::span<float>>& parts);
  void all_reduce_sum(std::span<double> values);
  void all_reduce_sum(std::span<int64_t> values);
  /// What rank 0 has replaces what the others have.
  void broadcast(std::string& bytes);
  /// Of every rank, in their order.
  std::vector<std::string> all_gather(const std::string& bytes);
  void barrier();

  /// Rank 0's value; the others' is ignored.
  template <typename T>
  T lead(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::string bytes(reinterpret_cast<const char*>(&value), sizeof(T));
    broadcast(bytes);
    T out;
    bytes.copy(reinterpret_cast<char*>(&out), sizeof(T));
    return out;
  }

  /// Tells the others why this rank goes: what they do together next fails with that text.
  virtual void leave(std::string_view why) noexcept = 0;
  /// Sent so far; 0 without others.
  virtual int64_t num_collectives() const = 0;

 protected:
  virtual void sum_floats(const std::vector<std::span<float>>& parts) = 0;
  /// `bytes` of every rank. `count`: values that must be as many everywhere.
  virtual std::vector<std::string> gather(CommKind kind, uint64_t count,
                                          const std::string& bytes) = 0;

 private:
  template <typename T>
  void sum_values(CommKind kind, std::span<T> values);
};

/// The only rank there is: nothing is sent, sums are what they were.
Comm& solo_comm();

}  // namespace dflash
