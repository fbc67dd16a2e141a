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

constexpr const char* kDigits = R"(\p{N})";

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

bool same_splits(const NamedRule& rule, const TokenizerSpec& spec) {
  std::vector<std::string> patterns;
  if (rule.digits_first) patterns.emplace_back(kDigits);
  patterns.emplace_back(*rule.pattern);
  if (patterns.size() != spec.splits.size()) return false;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const SplitStep& step = spec.splits[i];
    if (step.pattern != patterns[i] || step.removed || step.invert) return false;
  }
  return true;
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

void read_special_tokens(const io::GgufFile& file, TokenizerSpec& spec) {
  const std::vector<std::string> tokens = file.strings("tokenizer.ggml.tokens");
  const auto read = [&](const char* key, const char* name) {
    if (!file.has(key)) return;
    const int64_t id = file.integer(key);
    if (id < 0 || id >= static_cast<int64_t>(tokens.size())) return;
    spec.special_tokens[name] = tokens[static_cast<size_t>(id)];
  };
  read("tokenizer.ggml.bos_token_id", "bos_token");
  read("tokenizer.ggml.eos_token_id", "eos_token");
  read("tokenizer.ggml.unknown_token_id", "unk_token");
  read("tokenizer.ggml.padding_token_id", "pad_token");
}

}  // namespace

std::string gguf_rule_name(const TokenizerSpec& spec) {
  for (const NamedRule& rule : kRules) {
    if (rule.nfc == spec.nfc && rule.ignore_merges == spec.ignore_merges &&
        same_splits(rule, spec)) {
      return std::string(rule.name);
    }
  }
  fail("tokenizer: {}: GGUF has no name for its splitting rule that this program knows",
       spec.source);
}

std::vector<io::GgufEntry> gguf_entries(const TokenizerSpec& spec, int64_t vocab_size) {
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types(static_cast<size_t>(vocab_size), static_cast<int32_t>(kUnused));
  for (int64_t i = 0; i < vocab_size; ++i) tokens.push_back(fmt::format("[PAD{}]", i));
  const auto place = [&](const std::string& token, int64_t id, int64_t type) {
    if (id < 0 || id >= vocab_size) {
      fail("tokenizer: {}: token {}: expected an id below {}, got {}", spec.source, token,
           vocab_size, id);
    }
    tokens[static_cast<size_t>(id)] = token;
    types[static_cast<size_t>(id)] = static_cast<int32_t>(type);
  };
  for (const auto& [token, id] : spec.vocab) place(token, id, kNormal);
  for (const AddedToken& token : spec.added) {
    place(token.content, token.id, token.special ? kControl : kUserDefined);
  }
  for (const auto& [left, right] : spec.merges) merges.push_back(left + " " + right);
  std::vector<io::GgufEntry> entries = {{"tokenizer.ggml.model", std::string("gpt2")},
                                        {"tokenizer.ggml.pre", gguf_rule_name(spec)},
                                        {"tokenizer.ggml.tokens", std::move(tokens)},
                                        {"tokenizer.ggml.token_type", std::move(types)},
                                        {"tokenizer.ggml.merges", std::move(merges)},
                                        {"tokenizer.ggml.add_bos_token", false}};
  const auto add_id = [&](const char* key, int64_t id) {
    entries.push_back({key, static_cast<uint32_t>(id)});
  };
  if (spec.bos_id) add_id("tokenizer.ggml.bos_token_id", *spec.bos_id);
  if (!spec.stop_ids.empty()) add_id("tokenizer.ggml.eos_token_id", spec.stop_ids.front());
  return entries;
}

TokenizerSpec read_gguf_tokenizer(const io::GgufFile& file) {
  TokenizerSpec spec;
  spec.source = file.path().string();
  const std::string model = file.string("tokenizer.ggml.model");
  if (model != "gpt2") {
    fail("tokenizer: {}: tokenizer.ggml.model: expected 'gpt2' (byte-level BPE), got '{}'",
         spec.source, model);
  }
  const NamedRule& rule = rule_named(file.string("tokenizer.ggml.pre"), spec.source);
  if (rule.digits_first) spec.splits.push_back({kDigits});
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
  read_special_tokens(file, spec);
  if (file.has("tokenizer.chat_template")) {
    spec.chat_template = file.string("tokenizer.chat_template");
    spec.chat_template_source = spec.source + ": tokenizer.chat_template";
  }
  return spec;
}

}  // namespace dflash::text
