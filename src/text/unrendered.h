// What a template leaves out without a word. ChatML puts role and content and drops the rest; to
// train on such a text is to teach answers to a question that nobody asked (PREP-02, PREP-04).
#pragma once

#include <string>

#include "text/chat.h"

namespace dflash::text {

/// What of the conversation no prompt or answer shows, such as "reasoning" or "tools"; empty: all
/// of it is shown. Each part is looked for where its own answer is the last one: templates that
/// drop the reasoning of earlier turns show it there, and so do training_rows. Found by marking
/// the parts and rendering, so a part that is also said elsewhere does not pass for shown. Error:
/// as ChatTemplate::text.
std::string unrendered(const ChatTemplate& chat, const Conversation& conversation);

/// The same of a conversation that the target is to go on with: what follows the last answer counts
/// too.
std::string unrendered_in_prompt(const ChatTemplate& chat, const Conversation& conversation);

/// What reports count it as: "has tools, which the chat template does not render".
std::string unrendered_reason(const std::string& missing);

}  // namespace dflash::text
