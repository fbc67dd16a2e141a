// Task sets: JSON lines in any shape of a conversation that data/rows.h reads, an answer at its end
// left out, or with HumanEval's own fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/drops.h"
#include "text/chat.h"

namespace dflash::eval {

struct Task {
  std::string id;
  text::Conversation conversation;
};

struct TaskSet {
  std::string name;  // the file's name without its ending
  std::vector<Task> tasks;
  data::Drops left_out = {};  // records that are no task, counted with a warning for each reason
};

/// The one wording in which a HumanEval prompt (a Python function's head) is put to a chat model.
/// Numbers of two runs compare only when this text is the same.
std::string human_eval_message(std::string_view prompt);

/// A line with `task_id`, `prompt` and `entry_point` is HumanEval's and gets the wording above; any
/// other `prompt` is a user message as it stands. `limit` 0: all. Error: not a single task.
TaskSet read_tasks(const std::filesystem::path& path, int64_t limit = 0);

}  // namespace dflash::eval
