#include "text/prompt.h"

#include "base/error.h"
#include "text/unrendered.h"

namespace dflash::text {

EncodedPrompt encode_whole_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                  const Conversation& conversation) {
  EncodedPrompt out;
  try {
    const std::string missing = unrendered_in_prompt(chat, conversation);
    if (!missing.empty()) return {.refused = unrendered_reason(missing)};
    out.ids = encode_prompt(tokenizer, chat, conversation);
  } catch (const Error& error) {
    return {.refused = "refused by the chat template or tokenizer", .detail = error.what()};
  }
  if (out.ids.empty()) return {.refused = "no token in it"};
  return out;
}

}  // namespace dflash::text
