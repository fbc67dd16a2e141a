#include "text/bpe.h"

#include <bit>
#include <queue>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/unicode.h"

namespace dflash::text {
namespace {

constexpr size_t kShortPiece = 48;  // symbols; below, scanning beats a heap

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

uint64_t hash_pair(uint64_t key) {
  key *= 0x9E3779B97F4A7C15ULL;
  return key ^ (key >> 32);
}

/// The ids of a merge's two parts and of its result.
std::array<int32_t, 3> merge_ids(const TokenizerSpec& spec, size_t rank,
                                 const Vocabulary& vocabulary) {
  const auto& [left, right] = spec.merges[rank];
  const auto require = [&](const std::string& token, std::string_view what) {
    const auto found = vocabulary.find(token);
    if (found == vocabulary.end()) {
      fail("tokenizer: {}: merge {} ('{}', '{}'): its {} '{}' is not in the vocabulary",
           spec.source, rank, left, right, what, token);
    }
    return found->second;
  };
  return {require(left, "left part"), require(right, "right part"),
          require(left + right, "result")};
}

}  // namespace

Bpe::Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary),
      byte_level_(spec.byte_level),
      ignore_merges_(spec.ignore_merges),
      fuse_unk_(spec.fuse_unk) {
  if (spec.merges.empty()) {
    fail("tokenizer: {}: the merge table is empty\n  hint: the file was damaged when it was saved",
         spec.source);
  }
  if (spec.unk_token) {
    const auto found = vocabulary.find(*spec.unk_token);
    if (found == vocabulary.end()) {
      fail("tokenizer: {}: unk_token '{}' is not in the vocabulary", spec.source, *spec.unk_token);
    }
    unk_id_ = found->second;
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    append_code_point(byte_to_symbol(static_cast<uint8_t>(byte)), symbol);
    const auto found = vocabulary.find(symbol);
    byte_ids_[byte] = found == vocabulary.end() ? -1 : found->second;
  }
  slots_.resize(std::bit_ceil(2 * spec.merges.size() + 1));
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto [left, right, id] = merge_ids(spec, rank, vocabulary);
    const uint64_t key = pair_key(left, right);
    size_t at = hash_pair(key) & (slots_.size() - 1);
    while (slots_[at].pair != ~0ULL && slots_[at].pair != key) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, {static_cast<int32_t>(rank), id}};  // the last of two equal entries counts
  }
}

const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  size_t at = hash_pair(key) & (slots_.size() - 1);
  while (slots_[at].pair != ~0ULL) {
    if (slots_[at].pair == key) return &slots_[at].merge;
    at = (at + 1) & (slots_.size() - 1);
  }
  return nullptr;
}

void Bpe::push_symbol(int32_t id, size_t begin, std::vector<Symbol>& symbols) const {
  if (id < 0) {
    if (unk_id_ < 0) return;
    if (fuse_unk_ && !symbols.empty() && symbols.back().id == unk_id_) return;
    id = unk_id_;
  }
  symbols.push_back({id, static_cast<uint32_t>(begin)});
}

void Bpe::split_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
  symbols.clear();
  if (byte_level_) {
    for (size_t i = 0; i < piece.size(); ++i) {
      push_symbol(byte_ids_[static_cast<uint8_t>(piece[i])], i, symbols);
    }
    return;
  }
  for (size_t at = 0; at < piece.size();) {
    const size_t bytes = read_code_point(piece, at).bytes;
    const auto found = vocabulary_.find(piece.substr(at, bytes));
    push_symbol(found == vocabulary_.end() ? -1 : found->second, at, symbols);
    at += bytes;
  }
}

void Bpe::encode(std::string_view piece, std::vector<Symbol>& out) const {
  if (piece.empty()) return;
  if (ignore_merges_) {
    const auto found = vocabulary_.find(byte_level_ ? to_symbols(piece) : std::string(piece));
    if (found != vocabulary_.end()) return out.push_back({found->second, 0});
  }
  thread_local std::vector<Symbol> symbols;
  split_symbols(piece, symbols);
  if (symbols.size() <= kShortPiece) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

void Bpe::merge_short(std::vector<Symbol>& symbols) const {
  constexpr int32_t kNone = INT32_MAX;
  std::array<Merge, kShortPiece> next;  // next[i]: the merge of symbols i and i + 1
  const auto look = [&](size_t i) {
    const Merge* merge =
        i + 1 < symbols.size() ? find_merge(symbols[i].id, symbols[i + 1].id) : nullptr;
    next[i] = merge != nullptr ? *merge : Merge{kNone, -1};
  };
  for (size_t i = 0; i < symbols.size(); ++i) look(i);
  while (symbols.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < symbols.size(); ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].rank == kNone) return;
    symbols[best].id = next[best].id;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    for (size_t i = best + 1; i < symbols.size(); ++i) next[i] = next[i + 1];
    look(best);
    if (best > 0) look(best - 1);
  }
}

/// The same result in n log n: a linked list of symbols and a heap of candidate merges. A
/// candidate is stale when either of its symbols changed meanwhile.
void Bpe::merge_long(std::vector<Symbol>& symbols) const {
  struct Candidate {
    int32_t rank, place, left, right, id;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<int32_t> after(symbols.size()), before(symbols.size());
  std::priority_queue<Candidate> queue;
  const auto offer = [&](int32_t place) {
    if (place < 0 || after[place] >= count) return;
    const int32_t left = symbols[place].id, right = symbols[after[place]].id;
    const Merge* merge = find_merge(left, right);
    if (merge != nullptr) queue.push({merge->rank, place, left, right, merge->id});
  };
  for (int32_t i = 0; i < count; ++i) {
    before[i] = i - 1;
    after[i] = i + 1;
  }
  for (int32_t i = 0; i < count; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const int32_t next = after[top.place];
    if (symbols[top.place].id != top.left || next >= count || symbols[next].id != top.right) {
      continue;
    }
    symbols[top.place].id = top.id;
    symbols[next].id = -1;
    after[top.place] = after[next];
    if (after[next] < count) before[after[next]] = top.place;
    offer(top.place);
    offer(before[top.place]);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id < 0; });
}

}  // namespace dflash::text
