#include "jobs/prompts.h"

#include <map>

#include "base/error.h"
#include "base/log.h"
#include "io/fingerprint.h"
#include "io/jsonl.h"

namespace dflash::jobs {
namespace {

/// The id given, else a hash of what is said: a resumed run must know its prompts again, whatever
/// lines a file gained or lost.
std::string prompt_id(const Json& json, const std::vector<text::Message>& messages) {
  if (json.contains("id")) return json["id"].is_string() ? json["id"] : Json(json["id"].dump());
  io::Fingerprint hash("prompt");
  for (const auto& message : messages) hash.add(message.role).add(message.content);
  return hash.hex();
}

std::string text_field(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) fail("{}: missing", key);
  if (!found->is_string()) fail("{}: expected text, got {}", key, found->type_name());
  return found->get<std::string>();
}

Prompt parse_prompt(const Json& json) {
  if (!json.is_object()) fail("expected an object, got {}", json.type_name());
  Prompt prompt;
  if (json.contains("kind")) prompt.kind = text_field(json, "kind");
  if (json.contains("messages")) {
    const Json& messages = json["messages"];
    if (!messages.is_array()) fail("messages: expected a list, got {}", messages.type_name());
    for (const Json& message : messages) {
      prompt.messages.push_back({text_field(message, "role"), text_field(message, "content")});
    }
    // The answer of a conversation; the target writes its own.
    if (!messages.empty() && prompt.messages.back().role == "assistant") prompt.messages.pop_back();
  } else {
    prompt.messages.push_back({"user", text_field(json, "prompt")});
  }
  if (prompt.messages.empty()) fail("no message of a user in it");
  prompt.id = prompt_id(json, prompt.messages);
  return prompt;
}

}  // namespace

PromptFile read_prompts(const std::filesystem::path& path, int64_t limit) {
  PromptFile file;
  auto& prompts = file.prompts;
  std::map<std::string, int64_t> lines;  // of the ids
  const auto counts = io::read_jsonl(path, {}, [&](int64_t line, const Json& json) {
    if (limit > 0 && static_cast<int64_t>(prompts.size()) >= limit) return;
    try {
      prompts.push_back(parse_prompt(json));
      prompts.back().where = fmt::format("{}:{}", path.string(), line);
    } catch (const std::exception& e) {
      fail(
          "not a prompt: {}:{}: {}\n  hint: a line is {{\"prompt\": \"...\"}} or "
          "{{\"messages\": [{{\"role\": \"user\", \"content\": \"...\"}}]}}",
          path.string(), line, e.what());
    }
    const auto [first, fresh] = lines.emplace(prompts.back().id, line);
    if (fresh) return;
    if (json.contains("id")) {
      fail("two prompts with one id: {}:{}: {} is the id of line {} too", path.string(), line,
           first->first, first->second);
    }
    prompts.pop_back();
    file.repeated += 1;
  });
  if (prompts.empty()) fail("no prompt in {}", path.string());
  if (file.repeated > 0) {
    log_warning("{}: {} prompt{} said before in the file and left out", path.string(),
                file.repeated, file.repeated == 1 ? " is" : "s are");
  }
  if (counts.cut_off) {
    file.cut_off = 1;
    log_warning("{}: the last line ({}) is cut off and left out; is the file whole?", path.string(),
                counts.lines);
  }
  return file;
}

EncodedPrompt encode_prompt(const Model& model, const Prompt& prompt) {
  EncodedPrompt out;
  try {
    out.ids = text::encode_prompt(*model.tokenizer, model.chat, prompt.messages);
  } catch (const Error& error) {
    return {.refused = "refused by the chat template", .detail = error.what()};
  }
  const int64_t longest = model.target->config().max_positions;
  const auto length = static_cast<int64_t>(out.ids.size());
  if (length == 0) return {.refused = "no token in it"};
  if (length > longest) {
    return {.refused = "longer than the context",
            .detail = fmt::format("{} tokens, the context has {}", length, longest)};
  }
  return out;
}

}  // namespace dflash::jobs
