// Byte-level BPE, string <-> ids. Equal to the `tokenizers` library (MODELS.md 8.1) for models
// loaded from tokenizer.json (+ tokenizer_config.json) or from GGUF metadata. Thread-safe: const
// calls may run at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"

namespace dflash::text {

/// Whether special tokens ("<|im_end|>") written in the text become their ids or stay plain text.
/// Added tokens that are not special ("<think>") become their ids either way, as in the reference.
enum class Specials { kParse, kPlainText };

/// Ids and, for each, the byte of the caller's text where the token begins.
struct EncodedText {
  std::vector<int64_t> ids;
  std::vector<int64_t> begins;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Reads tokenizer.json and, where present, tokenizer_config.json, chat_template.jinja,
  /// generation_config.json and config.json (end ids). Error: anything the file asks for that is
  /// not implemented, by name.
  static std::shared_ptr<const Tokenizer> from_folder(const std::filesystem::path& folder);
  /// tokenizer.ggml.* of a byte-level BPE. Error: a tokenizer.ggml.pre that is not known.
  static std::shared_ptr<const Tokenizer> from_gguf(const io::GgufFile& file);

  /// No automatic begin token, ever: chat text already holds it.
  virtual std::vector<int64_t> encode(std::string_view text,
                                      Specials specials = Specials::kParse) const = 0;
  virtual EncodedText encode_with_offsets(std::string_view text,
                                          Specials specials = Specials::kParse) const = 0;
  /// Lossy UTF-8 (U+FFFD for broken sequences); ids past the vocabulary give an empty string.
  virtual std::string decode(const std::vector<int64_t>& ids, bool skip_special = false) const = 0;
  /// The raw bytes of one id (may be part of a code point).
  virtual std::string token_bytes(int64_t id) const = 0;
  virtual std::optional<int64_t> token_to_id(std::string_view token) const = 0;
  virtual bool is_special(int64_t id) const = 0;

  virtual int64_t size()
      const = 0;  // one past the highest id that has a string, added ones included
  virtual const std::vector<int64_t>& stop_ids() const = 0;  // end of turn, end of text
  virtual std::optional<int64_t> bos_id() const = 0;
  virtual std::optional<int64_t> pad_id() const { return std::nullopt; }
  /// Tokens that the files name, by that name ("bos_token"): what a chat template is told.
  virtual const std::map<std::string, std::string>& special_tokens() const;
  /// The chat template's text; empty when the files bring none.
  virtual const std::string& chat_template() const = 0;
  /// Where it stands, for messages: the file, and in a GGUF file the key.
  virtual std::string chat_template_source() const { return "the model's chat template"; }
  /// Hex hash over vocabulary, merges, added tokens, patterns and template.
  virtual std::string fingerprint() const = 0;
};

/// Ids -> text as it streams: holds back incomplete UTF-8, flushes it as U+FFFD (R-SV-1).
class StreamDecoder {
 public:
  /// `tokenizer` must outlive this. `skip_special` leaves special tokens out, as decode does.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  std::string push(int64_t id);
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace dflash::text
