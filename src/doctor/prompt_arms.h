// The same questions put to the target in other words: another system prompt, thinking mode or
// template. A drafter trained on such texts drafts worse on the declared ones (FAULTS.md, PREP).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/chat.h"

namespace dflash::doctor {

struct PromptArm {
  std::string name;                           // "system-empty"
  std::string words;                          // "an empty system prompt"
  std::vector<std::vector<int64_t>> prompts;  // ids, one a question, in their order
};

/// All that the tokenizer and its template can say and that differ from `declared`, the questions
/// as `chat` puts them. A form that the template refuses is left out.
std::vector<PromptArm> prompt_arms(const text::Tokenizer& tokenizer, const text::ChatTemplate& chat,
                                   const std::vector<text::Conversation>& questions,
                                   const std::vector<std::vector<int64_t>>& declared);

}  // namespace dflash::doctor
