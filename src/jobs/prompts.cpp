#include "jobs/prompts.h"

#include <set>

#include "base/error.h"
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

std::vector<Prompt> read_prompts(const std::filesystem::path& path, int64_t limit) {
  std::vector<Prompt> prompts;
  std::set<std::string> ids;
  io::read_jsonl(path, {}, [&](int64_t line, const Json& json) {
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
  return prompts;
}

}  // namespace dflash::jobs
