#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace dflash::text {
namespace {

char32_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return read_code_point(text, at).value;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && is_word(last_character(text.substr(0, begin)));
  const bool word_after = end < text.size() && is_word(read_code_point(text, end).value);
  return !word_before && !word_after;
}

size_t white_space_begin(std::string_view text, size_t end, size_t floor) {
  while (end > floor) {
    size_t at = end - 1;
    while (at > floor && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_white_space(read_code_point(text, at).value)) break;
    end = at;
  }
  return end;
}

size_t white_space_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint point = read_code_point(text, at);
    if (!is_white_space(point.value)) break;
    at += point.bytes;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, bool normalized, bool nfc_text) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized || token.content.empty()) continue;
    tokens_.push_back(token);
    if (normalized && nfc_text) tokens_.back().content = nfc(token.content).text;
  }
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    by_first_byte_[static_cast<uint8_t>(tokens_[i].content[0])].push_back(i);
  }
}

const AddedToken* AddedTokens::match(std::string_view text) const {
  for (const uint32_t i : by_first_byte_[static_cast<uint8_t>(text[0])]) {
    if (text.starts_with(tokens_[i].content)) return &tokens_[i];
  }
  return nullptr;
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, Specials specials) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = match(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;  // also after a match that is turned down
    if (token->special && specials == Specials::kPlainText) continue;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->lstrip) begin = white_space_begin(text, begin, done);
    if (token->rstrip) end = white_space_end(text, end);
    begin = std::max(begin, done);
    if (done < begin) parts.push_back({-1, done, begin});
    parts.push_back({token->id, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
  return parts;
}

}  // namespace dflash::text
