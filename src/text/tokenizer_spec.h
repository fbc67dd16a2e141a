// What a tokenizer is, as plain data: filled from tokenizer.json or from GGUF metadata, checked and
// made runnable by make_tokenizer. Field names follow tokenizer.json.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/gguf_write.h"
#include "text/tokenizer.h"

namespace dflash::text {

struct AddedToken {
  std::string content;
  int64_t id = -1;
  bool special = false;      // left out by decode(skip_special)
  bool normalized = false;   // searched in the normalised text
  bool single_word = false;  // only between non-word characters
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;
};

/// One pass over the pieces: matches of `pattern` become pieces of their own.
struct SplitStep {
  std::string pattern;   // Oniguruma spelling
  bool removed = false;  // matches are dropped ("Removed") instead of kept ("Isolated")
  bool invert = false;   // the text between matches counts as the match
};

struct TokenizerSpec {
  std::string source;  // path, for messages
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // index = rank
  bool ignore_merges = false;  // a piece that is a vocabulary entry is taken whole
  std::optional<std::string> unk_token;
  bool fuse_unk = false;

  bool nfc = false;
  std::vector<SplitStep> splits;
  bool byte_level = false;
  std::vector<AddedToken> added;

  std::vector<int64_t> stop_ids;
  std::optional<int64_t> bos_id, pad_id;
  std::map<std::string, std::string> special_tokens;  // "bos_token" and its kin
  std::string chat_template, chat_template_source;
};

/// The pattern of ByteLevel(use_regex) and those that GGUF files name instead of spelling out.
extern const char* const kGpt2Pattern;
extern const char* const kQwen2Pattern;
extern const char* const kQwen35Pattern;
extern const char* const kLlama3Pattern;

/// Errors: two strings with one id, two ids for one string, ids out of bounds, no merges, merges
/// whose parts or result the vocabulary lacks, patterns that do not compile.
std::shared_ptr<const Tokenizer> make_tokenizer(TokenizerSpec spec);

TokenizerSpec read_tokenizer_folder(const std::filesystem::path& folder);
TokenizerSpec read_gguf_tokenizer(const io::GgufFile& file);

/// What GGUF calls the spec's splitting rule ("smollm"). Error: none that is known.
std::string gguf_rule_name(const TokenizerSpec& spec);
/// The tokenizer.* keys of a GGUF file; rows without a string become unused ones up to vocab_size.
std::vector<io::GgufEntry> gguf_entries(const TokenizerSpec& spec, int64_t vocab_size);

/// Appends `id` unless it is there.
void add_stop_id(int64_t id, TokenizerSpec& spec);
/// Appends the ends that chat models use by name, when they are special added tokens.
void add_known_stops(TokenizerSpec& spec);

/// "left right" -> parts. Error naming `entry` when there is not exactly one space.
std::pair<std::string, std::string> split_merge(const std::string& merge, size_t entry,
                                                const std::string& source);

}  // namespace dflash::text
