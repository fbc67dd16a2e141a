// Tokenizers kept in GGUF metadata (tokenizer.ggml.*). The file names its splitting rule instead
// of spelling it out; what each name means is the reference library's pipeline of that model, so
// that ids equal those of its tokenizer.json (Qwen's NFC included).
#include <array>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer_spec.h"

namespace dflash::text {
namespace {

// llama_token_type
constexpr int64_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5;

struct NamedRule {
  std::string_view name;
  const char* const* pattern;
  bool digits_first, nfc, ignore_merges;
};

constexpr std::array<NamedRule, 13> kRules = {{
    {"smollm", &kGpt2Pattern, true, false, false},
    {"starcoder", &kGpt2Pattern, true, false, false},
    {"refact", &kGpt2Pattern, true, false, false},
    {"gpt-2", &kGpt2Pattern, false, false, false},
    {"gpt2", &kGpt2Pattern, false, false, false},
    {"qwen2", &kQwen2Pattern, false, true, false},
    {"deepseek-r1-qwen", &kQwen2Pattern, false, true, false},
    {"qwen35", &kQwen35Pattern, false, true, false},
    {"llama-bpe", &kLlama3Pattern, false, false, true},
    {"llama3", &kLlama3Pattern, false, false, true},
    {"llama-v3", &kLlama3Pattern, false, false, true},
    {"dbrx", &kLlama3Pattern, false, false, false},
    {"smaug-bpe", &kLlama3Pattern, false, false, false},
}};

const NamedRule& rule_named(const std::string& name, const std::string& source) {
  std::string known;
  for (const NamedRule& rule : kRules) {
    if (rule.name == name) return rule;
    known += (known.empty() ? "" : ", ") + std::string(rule.name);
  }
  fail("tokenizer: {}: tokenizer.ggml.pre: '{}' is not known\n  hint: known are {}", source, name,
       known);
}

void read_tokens(const io::GgufFile& file, TokenizerSpec& spec) {
  const std::vector<std::string> tokens = file.strings("tokenizer.ggml.tokens");
  std::vector<int64_t> types(tokens.size(), kNormal);
  if (file.has("tokenizer.ggml.token_type")) types = file.integers("tokenizer.ggml.token_type");
  if (types.size() != tokens.size()) {
    fail("tokenizer: {}: tokenizer.ggml.token_type: expected {} entries, got {}", spec.source,
         tokens.size(), types.size());
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    if (types[i] == kUnused) continue;  // a row without a string
    if (types[i] == kControl || types[i] == kUnknown || types[i] == kUserDefined) {
      spec.added.push_back({.content = tokens[i], .id = id, .special = types[i] != kUserDefined});
    }
    spec.vocab.emplace_back(tokens[i], id);
  }
}

void read_merges(const io::GgufFile& file, TokenizerSpec& spec) {
  const std::vector<std::string> merges = file.strings("tokenizer.ggml.merges");
  spec.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    spec.merges.push_back(split_merge(merges[i], i, spec.source));
  }
}

}  // namespace

TokenizerSpec read_gguf_tokenizer(const io::GgufFile& file) {
  TokenizerSpec spec;
  spec.source = file.path().string();
  const std::string model = file.string("tokenizer.ggml.model");
  if (model != "gpt2") {
    fail("tokenizer: {}: tokenizer.ggml.model: expected 'gpt2' (byte-level BPE), got '{}'",
         spec.source, model);
  }
  const NamedRule& rule = rule_named(file.string("tokenizer.ggml.pre"), spec.source);
  if (rule.digits_first) spec.splits.push_back({R"(\p{N})"});
  spec.splits.push_back({*rule.pattern});
  spec.nfc = rule.nfc;
  spec.ignore_merges = rule.ignore_merges;
  spec.byte_level = true;
  read_tokens(file, spec);
  read_merges(file, spec);
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (file.has(key)) add_stop_id(file.integer(key), spec);
  }
  add_known_stops(spec);
  if (file.has("tokenizer.ggml.bos_token_id")) {
    spec.bos_id = file.integer("tokenizer.ggml.bos_token_id");
  }
  if (file.has("tokenizer.ggml.padding_token_id")) {
    spec.pad_id = file.integer("tokenizer.ggml.padding_token_id");
  }
  if (file.has("tokenizer.chat_template")) {
    spec.chat_template = file.string("tokenizer.chat_template");
  }
  return spec;
}

}  // namespace dflash::text
