#include "eval/tasks.h"

#include <fmt/format.h>

#include "data/questions.h"

namespace dflash::eval {
namespace {

bool is_human_eval(const OrderedJson& record) {
  for (const char* key : {"task_id", "prompt", "entry_point"}) {
    if (!record.contains(key)) return false;
  }
  return !record.contains("messages");
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
  const auto take = [&](data::Row&& row, const OrderedJson& record, const io::RecordPlace& place) {
    if (is_human_eval(record)) {
      std::string& content = row.conversation.messages.back().content;
      content = human_eval_message(content);
    }
    auto rejected = data::read_id(record, "task_id", row.id);
    if (!rejected) {
      set.tasks.push_back({row.id.empty() ? place.in_file() : row.id, std::move(row.conversation)});
    }
    return rejected;
  };
  set.left_out = data::read_questions(path, limit, take);
  return set;
}

}  // namespace dflash::eval
