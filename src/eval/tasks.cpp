#include "eval/tasks.h"

#include "base/error.h"
#include "base/log.h"
#include "data/rows.h"
#include "io/records.h"

namespace dflash::eval {
namespace {

bool is_human_eval(const OrderedJson& record) {
  for (const char* key : {"task_id", "prompt", "entry_point"}) {
    if (!record.contains(key)) return false;
  }
  return !record.contains("messages");
}

Task parse_task(const OrderedJson& record, const io::RecordPlace& place) {
  data::Row row = data::parse_prompt(record);
  if (is_human_eval(record)) {
    std::string& content = row.conversation.messages.back().content;
    content = human_eval_message(content);
  }
  if (const auto rejected = data::read_id(record, "task_id", row.id)) {
    fail("{}: {}", rejected->reason, rejected->detail);
  }
  return {row.id.empty() ? place.in_file() : row.id, std::move(row.conversation)};
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
  const auto counts = io::read_records(path, {}, [&](const auto& place, const auto& record) {
    if (limit > 0 && static_cast<int64_t>(set.tasks.size()) >= limit) return;
    try {
      set.tasks.push_back(parse_task(record, place));
    } catch (const Error& error) {
      throw io::BadRecord(error.what());
    }
  });
  if (!counts.cut_off.empty()) {
    log_warning("tasks: {}: {}; it is left out; is the file whole?", path.string(), counts.cut_off);
  }
  if (set.tasks.empty()) fail("tasks: {}: expected at least one task, got none", path.string());
  return set;
}

}  // namespace dflash::eval
