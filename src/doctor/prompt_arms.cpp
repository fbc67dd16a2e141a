#include "doctor/prompt_arms.h"

#include <functional>

#include "base/error.h"

namespace dflash::doctor {
namespace {

using Messages = std::vector<text::Message>;
using Ids = std::vector<int64_t>;

Messages without_system(Messages messages) {
  if (!messages.empty() && messages[0].role == "system") messages.erase(messages.begin());
  return messages;
}

Messages with_system(const Messages& messages, const std::string& content) {
  Messages changed = without_system(messages);
  changed.insert(changed.begin(), {"system", content});
  return changed;
}

/// The bare texts, one after the other: what a program sends that forgot the template.
std::string bare(const Messages& messages) {
  std::string text;
  for (const text::Message& message : messages) {
    text += (text.empty() ? "" : "\n\n") + message.content;
  }
  return text;
}

/// ChatML without what a template adds of its own (a default system prompt, a thinking block).
std::string plain_chatml(const Messages& messages) {
  std::string text;
  for (const text::Message& message : messages) {
    text += "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n";
  }
  return text + "<|im_start|>assistant\n";
}

bool has_chatml(const text::Tokenizer& tokenizer) {
  const auto id = tokenizer.token_to_id("<|im_start|>");
  return id && tokenizer.is_special(*id);
}

class Arms {
 public:
  Arms(const std::vector<Messages>& questions, const std::vector<Ids>& declared)
      : questions_(questions), declared_(declared) {}

  void add(const std::string& name, const std::string& words,
           const std::function<Ids(const Messages&)>& encode) {
    PromptArm arm{name, words, {}};
    try {
      for (const Messages& messages : questions_) arm.prompts.push_back(encode(messages));
    } catch (const Error&) {
      return;  // the template refuses this form: nobody can have trained with it
    }
    for (const Ids& ids : arm.prompts) {
      if (ids.empty()) return;
    }
    if (arm.prompts == declared_) return;
    for (const PromptArm& other : arms) {
      if (other.prompts == arm.prompts) return;
    }
    arms.push_back(std::move(arm));
  }

  std::vector<PromptArm> arms;

 private:
  const std::vector<Messages>& questions_;
  const std::vector<Ids>& declared_;
};

void add_system_arms(const text::Tokenizer& tokenizer, const text::ChatTemplate& chat, Arms& arms) {
  arms.add("system-none", "no system prompt of its own", [&](const Messages& messages) {
    return text::encode_prompt(tokenizer, chat, without_system(messages));
  });
  arms.add("system-empty", "an empty system prompt", [&](const Messages& messages) {
    return text::encode_prompt(tokenizer, chat, with_system(messages, ""));
  });
  arms.add("system-helpful", "the system prompt 'You are a helpful assistant.'",
           [&](const Messages& messages) {
             return text::encode_prompt(tokenizer, chat,
                                        with_system(messages, "You are a helpful assistant."));
           });
}

void add_thinking_arms(const text::Tokenizer& tokenizer, Arms& arms) {
  if (tokenizer.chat_template().find("enable_thinking") == std::string::npos) return;
  for (const bool on : {true, false}) {
    const auto chat = text::ChatTemplate::for_tokenizer(tokenizer, {.enable_thinking = on});
    arms.add(
        on ? "thinking-on" : "thinking-off", on ? "thinking mode on" : "thinking mode off",
        [&](const Messages& messages) { return text::encode_prompt(tokenizer, chat, messages); });
  }
}

}  // namespace

std::vector<PromptArm> prompt_arms(const text::Tokenizer& tokenizer, const text::ChatTemplate& chat,
                                   const std::vector<Messages>& questions,
                                   const std::vector<Ids>& declared) {
  Arms arms(questions, declared);
  if (!tokenizer.chat_template().empty()) {
    add_system_arms(tokenizer, chat, arms);
    add_thinking_arms(tokenizer, arms);
  }
  if (has_chatml(tokenizer)) {
    arms.add("template-chatml", "plain ChatML, nothing added",
             [&](const Messages& messages) { return tokenizer.encode(plain_chatml(messages)); });
  }
  arms.add("template-none", "no chat template: the bare text",
           [&](const Messages& messages) { return tokenizer.encode(bare(messages)); });
  return std::move(arms.arms);
}

}  // namespace dflash::doctor
