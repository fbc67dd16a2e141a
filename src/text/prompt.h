// A conversation that the target is to go on with -> ids, or the reason why it cannot be asked.
// Nothing of it is left out: tools and earlier turns are asked with, or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/chat.h"

namespace dflash::text {

struct EncodedPrompt {
  std::vector<int64_t> ids = {};
  std::string refused = {}, detail = {};  // empty: it can be asked

  /// Reason and detail, for messages.
  std::string why() const { return detail.empty() ? refused : refused + ": " + detail; }
};

/// `refused` is one of few reasons, to be counted: "refused by the chat template or tokenizer", "no
/// token in it", or what the template does not render (text/unrendered.h).
EncodedPrompt encode_whole_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                  const Conversation& conversation);

}  // namespace dflash::text
