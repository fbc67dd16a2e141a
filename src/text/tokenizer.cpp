#include "text/tokenizer.h"

#include "text/tokenizer_spec.h"
#include "text/unicode.h"

namespace dflash::text {

const std::map<std::string, std::string>& Tokenizer::special_tokens() const {
  static const std::map<std::string, std::string> none;
  return none;
}

std::shared_ptr<const Tokenizer> Tokenizer::from_folder(const std::filesystem::path& folder) {
  return make_tokenizer(read_tokenizer_folder(folder));
}

std::shared_ptr<const Tokenizer> Tokenizer::from_gguf(const io::GgufFile& file) {
  return make_tokenizer(read_gguf_tokenizer(file));
}

std::string StreamDecoder::push(int64_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  pending_ += tokenizer_.token_bytes(id);
  const size_t ready = pending_.size() - truncated_tail_bytes(pending_);
  std::string out = repair_utf8(std::string_view(pending_).substr(0, ready)).text;
  pending_.erase(0, ready);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out = repair_utf8(pending_).text;
  pending_.clear();
  return out;
}

}  // namespace dflash::text
