#include "jobs/prompts.h"

#include <set>

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

Prompt parse_prompt(const Json& json) {
  Prompt prompt;
  prompt.kind = json.value("kind", "");
  if (json.contains("messages")) {
    for (const Json& message : json["messages"]) {
      prompt.messages.push_back(
          {message.at("role").get<std::string>(), message.at("content").get<std::string>()});
    }
  } else {
    prompt.messages.push_back({"user", json.at("prompt").get<std::string>()});
  }
  if (prompt.messages.empty()) fail("no message in it");
  prompt.id = prompt_id(json, prompt.messages);
  return prompt;
}

}  // namespace

PromptFile read_prompts(const std::filesystem::path& path, int64_t limit) {
  PromptFile file;
  auto& prompts = file.prompts;
  std::set<std::string> ids;
  const auto counts = io::read_jsonl(path, {}, [&](int64_t line, const Json& json) {
    if (limit > 0 && static_cast<int64_t>(prompts.size()) >= limit) return;
    try {
      prompts.push_back(parse_prompt(json));
    } catch (const std::exception& e) {
      fail(
          "not a prompt: {}:{}: {}\n  hint: a line is {{\"prompt\": \"...\"}} or "
          "{{\"messages\": [{{\"role\": \"user\", \"content\": \"...\"}}]}}",
          path.string(), line, e.what());
    }
    if (!ids.insert(prompts.back().id).second) {
      fail("two prompts with one id: {}:{}: {}", path.string(), line, prompts.back().id);
    }
  });
  if (prompts.empty()) fail("no prompt in {}", path.string());
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
