// Prompt files: JSON objects, one a line or in one array (io/records.h), in any shape of a
// conversation that data/rows.h reads; `id` and `kind` are optional. An assistant's turn at the end
// is left out: the target writes its own. HumanEval's own lines (`task_id`, `prompt`) are eval's
// business.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/drops.h"
#include "jobs/model.h"
#include "text/chat.h"
#include "text/prompt.h"

namespace dflash::jobs {

struct Prompt {
  std::string id, kind;
  text::Conversation conversation;
  std::string where = {};  // file and line or record, for messages
};

struct PromptFile {
  std::vector<Prompt> prompts;
  /// Records that are no prompt, cannot be read, or say what an earlier one said; counted with a
  /// warning for each reason, which names the first.
  data::Drops left_out;
};

/// Error: not a single prompt, or damage behind which the next record cannot be told
/// (io/records.h). `limit` 0: all.
PromptFile read_prompts(const std::filesystem::path& path, int64_t limit = 0);

using text::EncodedPrompt;

/// A prompt ready for the target, or why it cannot be answered: a reason of encode_whole_prompt or
/// "longer than the context". One odd prompt never ends a job.
EncodedPrompt encode_prompt(const Model& model, const Prompt& prompt);

}  // namespace dflash::jobs
