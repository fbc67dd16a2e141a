#include "target/config_reader.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"

namespace dflash::target {
namespace {

Json read_object(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  Json value = read_json(path);
  if (!value.is_object()) fail("model config: {}: expected an object", path.string());
  return value;
}

bool is_neutral(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json(0) || value == Json("") ||
         ((value.is_array() || value.is_object()) && value.empty());
}

bool is_tool_note(const std::string& key) {
  return key.starts_with("_") || key.ends_with("_version") || key.starts_with("unsloth");
}

}  // namespace

ConfigReader::ConfigReader(const std::filesystem::path& folder)
    : ConfigReader(read_object(folder), folder / "config.json") {}

ConfigReader::ConfigReader(Json root, std::filesystem::path path)
    : root_(std::move(root)), values_(root_), where_(path.string()) {
  if (const auto nested = root_.find("text_config"); nested != root_.end() && nested->is_object()) {
    values_.update(*nested);
    values_.erase("text_config");
  }
}

const Json* ConfigReader::find(const std::string& key) const {
  read_.insert(key);
  const auto found = values_.find(key);
  return found == values_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::wrong(const std::string& key, std::string_view expected,
                         const Json* found) const {
  fail("model config: {}: {}: expected {}, got {}", where_, key, expected,
       found ? found->dump().substr(0, 100) : "nothing");
}

bool ConfigReader::has(const std::string& key) const {
  return find(key) != nullptr;
}

int64_t ConfigReader::integer(const std::string& key) const {
  const Json* value = find(key);
  if (!value || !value->is_number_integer()) wrong(key, "an integer", value);
  if (value->is_number_unsigned() && value->get<uint64_t>() > (1ULL << 62)) {
    wrong(key, "an integer below 2^62", value);
  }
  return value->get<int64_t>();
}

int64_t ConfigReader::integer(const std::string& key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double ConfigReader::number(const std::string& key) const {
  const Json* value = find(key);
  if (!value || !value->is_number()) wrong(key, "a number", value);
  return value->get<double>();
}

double ConfigReader::number(const std::string& key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool ConfigReader::boolean(const std::string& key, bool fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) wrong(key, "true or false", value);
  return value->get<bool>();
}

std::string ConfigReader::string(const std::string& key) const {
  const Json* value = find(key);
  if (!value || !value->is_string()) wrong(key, "a string", value);
  return value->get<std::string>();
}

std::string ConfigReader::string(const std::string& key, const std::string& fallback) const {
  return has(key) ? string(key) : fallback;
}

std::vector<int64_t> ConfigReader::ids(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return {};
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<int64_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer()) wrong(key, "an id or a list of ids", value);
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

std::vector<std::string> ConfigReader::strings(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return {};
  if (!value->is_array()) wrong(key, "a list of texts", value);
  std::vector<std::string> texts;
  for (const Json& text : *value) {
    if (!text.is_string()) wrong(key, "a list of texts", value);
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

ConfigReader ConfigReader::object(const std::string& key) const {
  const Json* value = find(key);
  if (!value || !value->is_object()) wrong(key, "an object", value);
  return ConfigReader(*value, where_ + ": " + key);
}

bool ConfigReader::flag_at_any_level(const std::string& key) const {
  const auto top = root_.find(key);
  const bool top_flag = top != root_.end() && *top == Json(true);
  return boolean(key, false) || top_flag;
}

void ConfigReader::reject_unknown(const std::set<std::string>& harmless) const {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : values_.items()) {
    if (read_.contains(key) || harmless.contains(key)) continue;
    if (is_neutral(value) || is_tool_note(key)) continue;
    unknown.push_back(key);
  }
  if (unknown.empty()) return;
  fail(
      "model config: {}: unknown keys: {}\n  hint: known are {}; a key that does not change the "
      "computation can be removed from the file",
      where_, fmt::join(unknown, ", "), fmt::join(read_, ", "));
}

std::vector<int64_t> all_eos_ids(const std::filesystem::path& folder, const ConfigReader& config) {
  std::set<int64_t> ids;
  for (const int64_t id : config.ids("eos_token_id")) ids.insert(id);
  const std::filesystem::path path = folder / "generation_config.json";
  if (std::filesystem::exists(path)) {
    for (const int64_t id : ConfigReader(read_json(path), path).ids("eos_token_id")) ids.insert(id);
  }
  return {ids.begin(), ids.end()};
}

const std::set<std::string>& harmless_keys() {
  static const std::set<std::string> keys = {"architectures",
                                             "auto_map",
                                             "torch_dtype",
                                             "dtype",
                                             "use_cache",
                                             "initializer_range",
                                             "pretraining_tp",
                                             "attention_dropout",
                                             "hidden_dropout",
                                             "bos_token_id",
                                             "pad_token_id",
                                             "sep_token_id",
                                             "decoder_start_token_id",
                                             "return_dict",
                                             "output_hidden_states",
                                             "output_attentions",
                                             "finetuning_task",
                                             "id2label",
                                             "label2id",
                                             "problem_type",
                                             "is_llama_config",
                                             "max_length",
                                             "min_length",
                                             "do_sample",
                                             "top_k",
                                             "top_p",
                                             "temperature",
                                             "num_beams",
                                             "num_beam_groups",
                                             "num_return_sequences",
                                             "repetition_penalty",
                                             "length_penalty",
                                             "diversity_penalty",
                                             "typical_p",
                                             "chunk_size_feed_forward",
                                             "early_stopping",
                                             "encoder_no_repeat_ngram_size",
                                             "no_repeat_ngram_size",
                                             "prefix",
                                             "task_specific_params",
                                             "tokenizer_class",
                                             "transformers.js_config",
                                             "vision_config",
                                             "image_token_id",
                                             "video_token_id",
                                             "vision_start_token_id",
                                             "vision_end_token_id",
                                             "router_aux_loss_coef",
                                             "output_router_logits",
                                             "text_config",
                                             "model_name",
                                             "attn_implementation",
                                             "name_or_path"};
  return keys;
}

}  // namespace dflash::target
