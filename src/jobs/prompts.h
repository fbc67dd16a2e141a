// Prompt files: one JSON object a line with `prompt` (text) or `messages`; `id` and `kind` are
// optional. HumanEval's own lines (`task_id`, `prompt`) are eval's business.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/chat.h"

namespace dflash::jobs {

struct Prompt {
  std::string id, kind;
  std::vector<text::Message> messages;
};

/// Errors name the line; duplicate ids are refused. `limit` 0: all.
std::vector<Prompt> read_prompts(const std::filesystem::path& path, int64_t limit = 0);

}  // namespace dflash::jobs
