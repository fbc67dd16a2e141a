#include "text/tokenizer_spec.h"

#include <algorithm>

#include "base/error.h"

namespace dflash::text {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

void add_stop_id(int64_t id, TokenizerSpec& spec) {
  if (std::find(spec.stop_ids.begin(), spec.stop_ids.end(), id) == spec.stop_ids.end()) {
    spec.stop_ids.push_back(id);
  }
}

void add_known_stops(TokenizerSpec& spec) {
  for (const char* name :
       {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}) {
    for (const AddedToken& token : spec.added) {
      if (token.special && token.content == name) add_stop_id(token.id, spec);
    }
  }
}

std::pair<std::string, std::string> split_merge(const std::string& merge, size_t entry,
                                                const std::string& source) {
  const size_t space = merge.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != std::string::npos) {
    fail(
        "tokenizer: {}: merge {} ('{}'): expected two parts and one space\n"
        "  hint: save the tokenizer with a newer writer, which stores merges as pairs",
        source, entry, merge);
  }
  return {merge.substr(0, space), merge.substr(space + 1)};
}

}  // namespace dflash::text
