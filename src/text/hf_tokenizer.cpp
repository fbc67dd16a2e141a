// Tokenizers in Hugging Face folders: tokenizer.json holds the algorithm, tokenizer_config.json
// further added tokens and the template, generation_config.json and config.json the end ids.
#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "text/hf_pipeline.h"
#include "text/tokenizer_spec.h"

namespace dflash::text {
namespace {

namespace fs = std::filesystem;

AddedToken read_added_token(const Json& node, int64_t id) {
  const bool special = value_or(node, "special", false);
  return {.content = node.at("content").get<std::string>(),
          .id = id,
          .special = special,
          .normalized = value_or(node, "normalized", !special),
          .single_word = value_or(node, "single_word", false),
          .lstrip = value_or(node, "lstrip", false),
          .rstrip = value_or(node, "rstrip", false)};
}

AddedToken* find_added(const std::string& content, TokenizerSpec& spec) {
  const auto found = std::find_if(spec.added.begin(), spec.added.end(),
                                  [&](const AddedToken& t) { return t.content == content; });
  return found == spec.added.end() ? nullptr : &*found;
}

void read_merges(const Json& merges, TokenizerSpec& spec) {
  spec.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const Json& merge = merges[i];
    if (merge.is_string()) {
      spec.merges.push_back(split_merge(merge.get_ref<const std::string&>(), i, spec.source));
    } else if (merge.is_array() && merge.size() == 2) {
      spec.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      fail("tokenizer: {}: merge {}: expected \"a b\" or [\"a\", \"b\"], got {}", spec.source, i,
           merge.dump().substr(0, 80));
    }
  }
}

/// Settings of the model section that change ids and that we do not implement.
void refuse_unknown_settings(const Json& model, const TokenizerSpec& spec) {
  const auto refuse = [&](const char* key) {
    fail("tokenizer: {}: model.{}: {} is not supported", spec.source, key, model.at(key).dump());
  };
  if (value_or(model, "dropout", 0.0) != 0.0) refuse("dropout");
  if (value_or(model, "byte_fallback", false)) refuse("byte_fallback");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!value_or(model, key, std::string()).empty()) refuse(key);
  }
}

void read_model(const Json& tokenizer, TokenizerSpec& spec) {
  const Json& model = tokenizer.at("model");
  const auto type = value_or(model, "type", std::string("BPE"));
  if (type != "BPE") {
    fail("tokenizer: {}: model.type: '{}' is not supported\n  hint: known is BPE", spec.source,
         type);
  }
  refuse_unknown_settings(model, spec);
  const auto& vocab = model.at("vocab").get_ref<const Json::object_t&>();
  spec.vocab.reserve(vocab.size());
  for (const auto& [token, id] : vocab) spec.vocab.emplace_back(token, id.get<int64_t>());
  read_merges(model.at("merges"), spec);
  spec.ignore_merges = value_or(model, "ignore_merges", false);
  spec.fuse_unk = value_or(model, "fuse_unk", false);
  if (const auto unk = value_or(model, "unk_token", std::string()); !unk.empty()) {
    spec.unk_token = unk;
  }
  for (const Json& node : value_or(tokenizer, "added_tokens", Json::array())) {
    spec.added.push_back(read_added_token(node, node.at("id").get<int64_t>()));
  }
  read_pipeline(tokenizer, spec);
}

/// TOK-04: tokens listed only here count too; one string with two ids is an error.
void add_from_decoder(const Json& config, TokenizerSpec& spec) {
  std::map<int64_t, AddedToken> listed;
  const Json decoder = value_or(config, "added_tokens_decoder", Json::object());
  for (const auto& [key, node] : decoder.items()) {
    int64_t id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size()) {
      fail("tokenizer: {}: added_tokens_decoder: '{}' is not an id", spec.source, key);
    }
    listed.emplace(id, read_added_token(node, id));
  }
  for (const auto& [id, token] : listed) {
    const AddedToken* known = find_added(token.content, spec);
    if (known == nullptr) {
      spec.added.push_back(token);
    } else if (known->id != id) {
      fail("tokenizer: {}: token '{}' has id {} in tokenizer.json and {} in tokenizer_config.json",
           spec.source, token.content, known->id, id);
    }
  }
}

/// A special token of the config is a string or {"content": ...}.
std::string token_text(const Json& node) {
  if (node.is_string()) return node.get<std::string>();
  return node.is_object() ? value_or(node, "content", std::string()) : std::string();
}

std::optional<int64_t> id_of(const std::string& token, TokenizerSpec& spec) {
  if (token.empty()) return std::nullopt;
  if (const AddedToken* known = find_added(token, spec)) return known->id;
  const auto found = std::find_if(spec.vocab.begin(), spec.vocab.end(),
                                  [&](const auto& entry) { return entry.first == token; });
  if (found == spec.vocab.end()) return std::nullopt;
  return found->second;
}

/// A token that the config calls special, and that so far is only a vocabulary entry, is matched
/// whole and skipped on decode.
void add_named_special(const Json& node, TokenizerSpec& spec) {
  const std::string token = token_text(node);
  if (token.empty() || find_added(token, spec) != nullptr) return;
  if (const auto id = id_of(token, spec)) {
    spec.added.push_back({.content = token, .id = *id, .special = true});
  } else {
    log_warning("tokenizer: {}: special token '{}' has no id and is not used", spec.source, token);
  }
}

void read_template(const fs::path& folder, const Json& config, TokenizerSpec& spec) {
  if (const fs::path file = folder / "chat_template.jinja"; fs::exists(file)) {
    spec.chat_template = read_text(file);
    spec.chat_template_source = file.string();
    return;
  }
  spec.chat_template_source = (folder / "tokenizer_config.json").string();
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return;
  if (found->is_string()) {
    spec.chat_template = found->get<std::string>();
    return;
  }
  for (const Json& named : *found) {
    if (named.at("name") == "default") spec.chat_template = named.at("template");
  }
  if (spec.chat_template.empty()) {
    fail("tokenizer: {}: chat_template: a list without one named 'default'", spec.source);
  }
}

void read_config(const fs::path& folder, const Json& config, TokenizerSpec& spec) {
  add_from_decoder(config, spec);
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (config.contains(key)) add_named_special(config.at(key), spec);
  }
  for (const Json& token : value_or(config, "additional_special_tokens", Json::array())) {
    add_named_special(token, spec);
  }
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                          "cls_token", "mask_token"}) {
    const std::string token = token_text(config.value(key, Json()));
    if (!token.empty()) spec.special_tokens[key] = token;
  }
  spec.bos_id = id_of(token_text(config.value("bos_token", Json())), spec);
  spec.pad_id = id_of(token_text(config.value("pad_token", Json())), spec);
  if (const auto eos = id_of(token_text(config.value("eos_token", Json())), spec)) {
    add_stop_id(*eos, spec);
  }
  read_template(folder, config, spec);
}

/// eos_token_id is a number or a list (TOK-08).
void add_stops_of(const Json& config, TokenizerSpec& spec) {
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) return;
  if (found->is_number_integer()) return add_stop_id(found->get<int64_t>(), spec);
  for (const Json& id : *found) add_stop_id(id.get<int64_t>(), spec);
}

Json read_if_there(const fs::path& path) {
  return fs::exists(path) ? read_json(path) : Json::object();
}

}  // namespace

TokenizerSpec read_tokenizer_folder(const fs::path& folder) {
  TokenizerSpec spec;
  const fs::path file = folder / "tokenizer.json";
  spec.source = file.string();
  if (!fs::exists(file)) {
    fail(
        "tokenizer: {}: not found\n  hint: only tokenizer.json is read; older vocab.json and "
        "merges.txt can be saved again with the Python library",
        spec.source);
  }
  const Json tokenizer = read_json(file);
  try {
    read_model(tokenizer, spec);
    read_config(folder, read_if_there(folder / "tokenizer_config.json"), spec);
    add_stops_of(read_if_there(folder / "generation_config.json"), spec);
    const Json config = read_if_there(folder / "config.json");
    add_stops_of(config, spec);
    add_stops_of(config.value("text_config", Json::object()), spec);
  } catch (const Json::exception& e) {
    fail("tokenizer: {}: an entry is missing or of the wrong type: {}", spec.source, e.what());
  }
  add_known_stops(spec);
  return spec;
}

}  // namespace dflash::text
