// The pipeline: repair -> added tokens -> normalise -> added tokens -> split -> byte-pair encoding.
// Stages and their order: MODELS.md 8.1.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/rng.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/regex.h"
#include "text/tokenizer_spec.h"
#include "text/unicode.h"

namespace dflash::text {
namespace {

constexpr int64_t kMaxTokens = 1 << 24;       // bounds what a hostile file can make us allocate
constexpr size_t kMaxTextBytes = 1ULL << 31;  // places in a text are kept in 32 bits

/// Two independent 64-bit chains over length-prefixed strings.
class Fingerprint {
 public:
  void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    for (size_t at = 0; at < text.size(); at += 8) {
      uint64_t word = 0;
      const std::string_view chunk = text.substr(at, 8);
      for (size_t i = 0; i < chunk.size(); ++i) {
        word |= static_cast<uint64_t>(static_cast<uint8_t>(chunk[i])) << (8 * i);
      }
      add(word);
    }
  }
  void add(uint64_t word) {
    first_ = mix({first_, word});
    second_ = mix({word, second_});
  }
  std::string hex() const { return fmt::format("{:016x}{:016x}", first_, second_); }

 private:
  uint64_t first_ = 1, second_ = 2;
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerSpec spec);

  std::vector<int64_t> encode(std::string_view text, Specials specials) const override {
    return encode_with_offsets(text, specials).ids;
  }
  EncodedText encode_with_offsets(std::string_view text, Specials specials) const override;
  std::string decode(const std::vector<int64_t>& ids, bool skip_special) const override;
  std::string token_bytes(int64_t id) const override {
    return known(id) ? bytes_[id] : std::string();
  }
  std::optional<int64_t> token_to_id(std::string_view token) const override {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end()) return std::nullopt;
    return found->second;
  }
  bool is_special(int64_t id) const override { return known(id) && special_[id] != 0; }

  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  const std::vector<int64_t>& stop_ids() const override { return spec_.stop_ids; }
  std::optional<int64_t> bos_id() const override { return spec_.bos_id; }
  std::optional<int64_t> pad_id() const override { return spec_.pad_id; }
  const std::map<std::string, std::string>& special_tokens() const override {
    return spec_.special_tokens;
  }
  const std::string& chat_template() const override { return spec_.chat_template; }
  std::string chat_template_source() const override { return spec_.chat_template_source; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  bool known(int64_t id) const { return id >= 0 && id < size(); }
  void enter(const std::string& token, int64_t id);
  void enter_tokens();
  std::string make_fingerprint() const;

  struct Work;
  void encode_plain(const MappedText& text, size_t begin, size_t end, Work& work) const;
  void split_pieces(std::string_view text, Work& work) const;

  TokenizerSpec spec_;
  Vocabulary vocabulary_;            // every string, added ones included
  std::vector<std::string> tokens_;  // by id; empty where no string has the id
  std::vector<std::string> bytes_;   // by id: what the token writes
  std::vector<uint8_t> special_;
  AddedTokens raw_added_, normalized_added_;
  std::vector<Regex> splits_;
  std::optional<Bpe> bpe_;
  std::string fingerprint_;
};

/// Memory of one call.
struct BpeTokenizer::Work {
  Specials specials;
  EncodedText out;
  std::vector<std::string_view> pieces, next_pieces;
  std::vector<Symbol> symbols;
  Regex::Scratch scratch;
};

BpeTokenizer::BpeTokenizer(TokenizerSpec spec)
    : spec_(std::move(spec)),
      raw_added_(spec_.added, false, spec_.nfc),
      normalized_added_(spec_.added, true, spec_.nfc) {
  enter_tokens();
  for (const SplitStep& step : spec_.splits) splits_.emplace_back(step.pattern, spec_.source);
  bpe_.emplace(spec_, vocabulary_);
  for (const int64_t id : spec_.stop_ids) {
    if (id < 0 || id >= kMaxTokens) fail("tokenizer: {}: end token id {}", spec_.source, id);
  }
  fingerprint_ = make_fingerprint();
  spec_.vocab = {};
  spec_.merges = {};
}

void BpeTokenizer::enter(const std::string& token, int64_t id) {
  if (id < 0 || id >= kMaxTokens) {
    fail("tokenizer: {}: token '{}' has id {}, expected 0 to {}", spec_.source, token, id,
         kMaxTokens - 1);
  }
  if (id >= static_cast<int64_t>(tokens_.size())) tokens_.resize(id + 1);
  const auto [place, fresh] = vocabulary_.try_emplace(token, static_cast<int32_t>(id));
  if (place->second != id) {
    fail("tokenizer: {}: token '{}' has two ids, {} and {}", spec_.source, token, place->second,
         id);
  }
  if (fresh && !tokens_[id].empty()) {
    fail("tokenizer: {}: id {} belongs to two tokens, '{}' and '{}'", spec_.source, id, tokens_[id],
         token);
  }
  tokens_[id] = token;
}

void BpeTokenizer::enter_tokens() {
  vocabulary_.reserve(spec_.vocab.size() + spec_.added.size());
  for (const auto& [token, id] : spec_.vocab) enter(token, id);
  for (const AddedToken& token : spec_.added) enter(token.content, token.id);
  bytes_ = tokens_;
  if (spec_.byte_level) {
    for (std::string& token : bytes_) {
      if (auto bytes = from_symbols(token)) token = std::move(*bytes);
    }
  }
  special_.assign(tokens_.size(), 0);
  for (const AddedToken& token : spec_.added) {
    bytes_[token.id] = token.content;
    special_[token.id] = token.special;
  }
}

std::string BpeTokenizer::make_fingerprint() const {
  Fingerprint print;
  for (const std::string& token : tokens_) print.add(token);
  for (const auto& [left, right] : spec_.merges) {
    print.add(left);
    print.add(right);
  }
  for (const AddedToken& token : spec_.added) {
    print.add(token.content);
    print.add((token.special ? 1U : 0U) | (token.normalized ? 2U : 0U) |
              (token.single_word ? 4U : 0U) | (token.lstrip ? 8U : 0U) | (token.rstrip ? 16U : 0U));
  }
  for (const SplitStep& step : spec_.splits) {
    print.add(step.pattern);
    print.add((step.removed ? 1U : 0U) | (step.invert ? 2U : 0U));
  }
  print.add((spec_.nfc ? 1U : 0U) | (spec_.byte_level ? 2U : 0U) | (spec_.ignore_merges ? 4U : 0U));
  print.add(spec_.chat_template);
  return print.hex();
}

EncodedText BpeTokenizer::encode_with_offsets(std::string_view text, Specials specials) const {
  if (text.size() >= kMaxTextBytes) fail("tokenizer: a text of {} bytes is too long", text.size());
  const MappedText repaired = repair_utf8(text);
  Work work{specials, {}, {}, {}, {}, {}};
  for (const AddedTokens::Part& part : raw_added_.split(repaired.text, specials)) {
    if (part.id >= 0) {
      work.out.ids.push_back(part.id);
      work.out.begins.push_back(static_cast<int64_t>(repaired.source_of(part.begin)));
    } else {
      encode_plain(repaired, part.begin, part.end, work);
    }
  }
  return std::move(work.out);
}

/// text[begin, end) holds no raw added token.
void BpeTokenizer::encode_plain(const MappedText& text, size_t begin, size_t end,
                                Work& work) const {
  const std::string_view plain = std::string_view(text.text).substr(begin, end - begin);
  MappedText normalized;
  if (spec_.nfc) normalized = nfc(plain);
  const std::string_view whole = spec_.nfc ? std::string_view(normalized.text) : plain;
  const auto place = [&](size_t at) {
    return static_cast<int64_t>(text.source_of(begin + normalized.source_of(at)));
  };
  for (const AddedTokens::Part& part : normalized_added_.split(whole, work.specials)) {
    if (part.id >= 0) {
      work.out.ids.push_back(part.id);
      work.out.begins.push_back(place(part.begin));
      continue;
    }
    split_pieces(whole.substr(part.begin, part.end - part.begin), work);
    for (const std::string_view piece : work.pieces) {
      work.symbols.clear();
      bpe_->encode(piece, work.symbols);
      const auto offset = static_cast<size_t>(piece.data() - whole.data());
      for (const Symbol& symbol : work.symbols) {
        work.out.ids.push_back(symbol.id);
        work.out.begins.push_back(place(offset + symbol.begin));
      }
    }
  }
}

/// Fills work.pieces. Matches and the gaps between them alternate; empty ones vanish, but an empty
/// match still cuts.
void BpeTokenizer::split_pieces(std::string_view text, Work& work) const {
  work.pieces.assign(1, text);
  for (size_t step = 0; step < splits_.size(); ++step) {
    const SplitStep& rule = spec_.splits[step];
    work.next_pieces.clear();
    for (const std::string_view piece : work.pieces) {
      const auto keep = [&](size_t begin, size_t end, bool matched) {
        if (begin < end && !(rule.removed && matched != rule.invert)) {
          work.next_pieces.push_back(piece.substr(begin, end - begin));
        }
      };
      size_t done = 0;
      for (size_t from = 0; from <= piece.size();) {
        const auto found = splits_[step].find(piece, from, work.scratch);
        if (!found) break;
        keep(done, found->begin, false);
        keep(found->begin, found->end, true);
        done = from = found->end;
        if (found->begin == found->end) {
          from += from < piece.size() ? read_code_point(piece, from).bytes : 1;
        }
      }
      keep(done, piece.size(), false);
    }
    std::swap(work.pieces, work.next_pieces);
  }
}

std::string BpeTokenizer::decode(const std::vector<int64_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const int64_t id : ids) {
    if (known(id) && !(skip_special && special_[id] != 0)) bytes += bytes_[id];
  }
  return repair_utf8(bytes).text;
}

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(TokenizerSpec spec) {
  return std::make_shared<BpeTokenizer>(std::move(spec));
}

}  // namespace dflash::text
