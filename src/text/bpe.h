// Byte-pair encoding of one piece (MODELS.md 8.1, step 5): starting from single symbols, the
// adjacent pair of lowest rank merges, leftmost on ties, until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_spec.h"

namespace dflash::text {

/// string -> id with look-up by view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

/// A token of a piece and the piece's byte where it begins.
struct Symbol {
  int32_t id = -1;
  uint32_t begin = 0;
};

class Bpe {
 public:
  /// `vocabulary` must outlive this. Errors: see make_tokenizer.
  Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  /// Appends the tokens of `piece` (raw bytes, valid UTF-8). A symbol that the vocabulary lacks is
  /// dropped, or becomes unk_token where the file names one.
  void encode(std::string_view piece, std::vector<Symbol>& out) const;

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = -1;
  };

  void split_symbols(std::string_view piece, std::vector<Symbol>& symbols) const;
  void push_symbol(int32_t id, size_t begin, std::vector<Symbol>& symbols) const;
  const Merge* find_merge(int32_t left, int32_t right) const;
  void merge_short(std::vector<Symbol>& symbols) const;
  void merge_long(std::vector<Symbol>& symbols) const;

  const Vocabulary& vocabulary_;
  bool byte_level_, ignore_merges_, fuse_unk_;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_ids_;
  struct Slot {
    uint64_t pair = ~0ULL;
    Merge merge;
  };
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace dflash::text
