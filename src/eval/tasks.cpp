#include "eval/tasks.h"

#include "base/error.h"
#include "base/log.h"
#include "io/jsonl.h"

namespace dflash::eval {
namespace {

std::string string_field(const Json& record, const char* key) {
  if (!record.is_object() || !record.contains(key) || !record[key].is_string()) {
    throw io::BadRecord(fmt::format("expected text under \"{}\"", key));
  }
  return record[key].get<std::string>();
}

std::vector<text::Message> messages_of(const Json& record) {
  if (!record.is_object()) throw io::BadRecord("expected an object");
  if (!record.contains("messages")) {
    const std::string prompt = string_field(record, "prompt");
    const bool human_eval = record.contains("task_id") && record.contains("entry_point");
    return {{"user", human_eval ? human_eval_message(prompt) : prompt}};
  }
  const Json& list = record["messages"];
  if (!list.is_array() || list.empty()) throw io::BadRecord("expected a list under \"messages\"");
  std::vector<text::Message> messages;
  for (const Json& message : list) {
    messages.push_back({string_field(message, "role"), string_field(message, "content")});
  }
  if (messages.back().role == "assistant") messages.pop_back();  // the target writes its own
  if (messages.empty()) throw io::BadRecord("expected a message before the assistant's");
  return messages;
}

std::string id_of(const Json& record, int64_t line) {
  for (const char* key : {"task_id", "id"}) {
    if (!record.contains(key)) continue;
    return record[key].is_string() ? record[key].get<std::string>() : record[key].dump();
  }
  return fmt::format("line {}", line);
}

}  // namespace

std::string human_eval_message(std::string_view prompt) {
  return fmt::format(
      "Complete this Python function. Answer with the whole function.\n\n"
      "```python\n{}\n```",
      prompt.substr(0, prompt.find_last_not_of('\n') + 1));
}

TaskSet read_tasks(const std::filesystem::path& path, int64_t limit) {
  TaskSet set;
  set.name = path.stem().string();
  const auto counts = io::read_jsonl(path, {}, [&](int64_t line, const Json& record) {
    if (limit > 0 && static_cast<int64_t>(set.tasks.size()) >= limit) return;
    std::vector<text::Message> messages = messages_of(record);
    set.tasks.push_back({id_of(record, line), std::move(messages)});
  });
  if (counts.cut_off) {
    log_warning("tasks: {}: the last line ({}) is cut off and left out; is the file whole?",
                path.string(), counts.lines);
  }
  if (set.tasks.empty()) fail("tasks: {}: expected at least one task, got none", path.string());
  return set;
}

}  // namespace dflash::eval
