#include "jobs/prompts.h"

#include <set>

#include "base/error.h"
#include "io/jsonl.h"

namespace dflash::jobs {
namespace {

Prompt parse_prompt(const Json& json, int64_t line) {
  Prompt prompt;
  prompt.id = json.contains("id")
                  ? (json["id"].is_string() ? json["id"].get<std::string>() : json["id"].dump())
                  : fmt::format("line-{}", line);
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
  return prompt;
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& path, int64_t limit) {
  std::vector<Prompt> prompts;
  std::set<std::string> ids;
  io::read_jsonl(path, {}, [&](int64_t line, const Json& json) {
    if (limit > 0 && static_cast<int64_t>(prompts.size()) >= limit) return;
    try {
      prompts.push_back(parse_prompt(json, line));
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
