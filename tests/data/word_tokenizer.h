// A tokenizer for tests: every word, line break and ChatML marker is one token; ids are given out
// as words are met.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace dflash {

class WordTokenizer : public text::Tokenizer {
 public:
  WordTokenizer() {
    for (const char* word : {"<|im_start|>", "<|im_end|>", "\n"}) id_of(word);
  }
  explicit WordTokenizer(std::string chat_template) : WordTokenizer() {
    template_ = std::move(chat_template);
  }

  text::EncodedText encode_with_offsets(std::string_view text, text::Specials) const override {
    text::EncodedText out;
    for (size_t at = 0; at < text.size();) {
      if (text[at] == ' ') {
        ++at;
        continue;
      }
      const size_t length = word_length(text.substr(at));
      out.ids.push_back(id_of(std::string(text.substr(at, length))));
      out.begins.push_back(static_cast<int64_t>(at));
      at += length;
    }
    return out;
  }
  std::vector<int64_t> encode(std::string_view text, text::Specials specials) const override {
    return encode_with_offsets(text, specials).ids;
  }
  std::string decode(const std::vector<int64_t>& ids, bool skip_special) const override {
    std::string text;
    for (int64_t id : ids) {
      if (!(skip_special && is_special(id))) text += token_bytes(id) + " ";
    }
    return text;
  }
  std::string token_bytes(int64_t id) const override {
    return id < static_cast<int64_t>(words_.size()) ? words_[id] : "";
  }
  std::optional<int64_t> token_to_id(std::string_view token) const override {
    const auto found = ids_.find(std::string(token));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  bool is_special(int64_t id) const override { return id < 2; }
  int64_t size() const override { return 100000; }
  const std::vector<int64_t>& stop_ids() const override { return stops_; }
  std::optional<int64_t> bos_id() const override { return std::nullopt; }
  std::optional<int64_t> pad_id() const override { return 94; }
  const std::string& chat_template() const override { return template_; }
  std::string fingerprint() const override { return "words"; }

  int64_t id_of(const std::string& word) const {
    const auto [place, fresh] = ids_.emplace(word, static_cast<int64_t>(words_.size()));
    if (fresh) words_.push_back(word);
    return place->second;
  }

 private:
  static size_t word_length(std::string_view text) {
    for (std::string_view marker : {"<|im_start|>", "<|im_end|>", "\n"}) {
      if (text.starts_with(marker)) return marker.size();
    }
    return std::min(text.find_first_of(" \n<", 1), text.size());
  }

  mutable std::map<std::string, int64_t> ids_;
  mutable std::vector<std::string> words_;
  std::vector<int64_t> stops_ = {1};
  std::string template_ =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\n' }}{% endif %}";
};

}  // namespace dflash
