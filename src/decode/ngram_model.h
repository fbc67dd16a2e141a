// Prompt lookup as a model of the next token: what followed the last ids earlier in the same text.
// Longer matches are trusted first, each as far as matches of its kind were right in this text so
// far (every committed token tells, whether it was drafted or not).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace dflash::decode {

/// A token and how likely a proposer holds it.
struct Candidate {
  int64_t id = 0;
  double probability = 0;
};

class NgramModel {
 public:
  /// Takes in the ids of the text that are new; `text` begins with what was taken in before.
  void extend(std::span<const int64_t> text);
  int64_t size() const { return static_cast<int64_t>(text_.size()); }

  /// What may follow the text and then `way`, likeliest first; the sum is at most 1.
  std::vector<Candidate> next(std::span<const int64_t> way) const;

 private:
  static constexpr int64_t kOrders = 4;   // longest match
  static constexpr int64_t kRecent = 8;   // occurrences that are looked at
  static constexpr int64_t kManyBin = 2;  // occurrences: 1, 2, more
  struct Trust {
    double right, all;
  };
  struct Followers {
    std::vector<Candidate> ids;  // probability: weight
    int64_t occurrences = 0;
    double sum = 0;
  };

  static uint64_t key_of(std::span<const int64_t> ids);
  void push(int64_t id);
  Followers followers(std::span<const int64_t> last) const;
  const Trust& trust(int64_t order, int64_t occurrences) const;

  std::vector<int64_t> text_;
  /// By order - 1: where the n-gram ended last, and for each end the one before it or -1.
  std::array<std::unordered_map<uint64_t, int64_t>, kOrders> latest_;
  std::array<std::vector<int64_t>, kOrders> before_;
  /// Counts that stand for experience with other texts.
  std::array<std::array<Trust, kManyBin + 1>, kOrders> trust_ = {{
      {{{0.7, 4}, {0.9, 4}, {1.3, 4}}},
      {{{1.6, 4}, {2.0, 4}, {2.4, 4}}},
      {{{2.4, 4}, {2.8, 4}, {3.1, 4}}},
      {{{3.0, 4}, {3.3, 4}, {3.6, 4}}},
  }};
};

}  // namespace dflash::decode
