#include "doctor/prompt_arms.h"

#include <functional>

#include "base/error.h"

namespace dflash::doctor {
namespace {

using text::Conversation;
using Ids = std::vector<int64_t>;

Conversation without_system(Conversation question) {
  auto& messages = question.messages;
  if (!messages.empty() && messages[0].role == "system") messages.erase(messages.begin());
  return question;
}

Conversation with_system(const Conversation& question, const std::string& content) {
  Conversation changed = without_system(question);
  changed.messages.insert(changed.messages.begin(), {"system", content});
  return changed;
}

/// The bare texts, one after the other: what a program sends that forgot the template.
std::string bare(const Conversation& question) {
  std::string text;
  for (const text::Message& message : question.messages) {
    text += (text.empty() ? "" : "\n\n") + message.content;
  }
  return text;
}

/// ChatML without what a template adds of its own (a default system prompt, a thinking block).
std::string plain_chatml(const Conversation& question) {
  std::string text;
  for (const text::Message& message : question.messages) {
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
  Arms(const std::vector<Conversation>& questions, const std::vector<Ids>& declared)
      : questions_(questions), declared_(declared) {}

  void add(const std::string& name, const std::string& words,
           const std::function<Ids(const Conversation&)>& encode) {
    PromptArm arm{name, words, {}};
    try {
      for (const Conversation& question : questions_) arm.prompts.push_back(encode(question));
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
  const std::vector<Conversation>& questions_;
  const std::vector<Ids>& declared_;
};

void add_system_arms(const text::Tokenizer& tokenizer, const text::ChatTemplate& chat, Arms& arms) {
  arms.add("system-none", "no system prompt of its own", [&](const Conversation& question) {
    return text::encode_prompt(tokenizer, chat, without_system(question));
  });
  arms.add("system-empty", "an empty system prompt", [&](const Conversation& question) {
    return text::encode_prompt(tokenizer, chat, with_system(question, ""));
  });
  arms.add("system-helpful", "the system prompt 'You are a helpful assistant.'",
           [&](const Conversation& question) {
             return text::encode_prompt(tokenizer, chat,
                                        with_system(question, "You are a helpful assistant."));
           });
}

void add_thinking_arms(const text::Tokenizer& tokenizer, const text::ChatTemplate& declared,
                       Arms& arms) {
  if (!declared.knows_thinking()) return;
  for (const bool on : {true, false}) {
    text::ChatOptions options;
    options.enable_thinking = on;
    const auto chat = text::ChatTemplate::for_tokenizer(tokenizer, options);
    arms.add(on ? "thinking-on" : "thinking-off", on ? "thinking mode on" : "thinking mode off",
             [&](const Conversation& question) {
               return text::encode_prompt(tokenizer, chat, question);
             });
  }
}

}  // namespace

std::vector<PromptArm> prompt_arms(const text::Tokenizer& tokenizer, const text::ChatTemplate& chat,
                                   const std::vector<Conversation>& questions,
                                   const std::vector<Ids>& declared) {
  Arms arms(questions, declared);
  if (!tokenizer.chat_template().empty()) {
    add_system_arms(tokenizer, chat, arms);
    add_thinking_arms(tokenizer, chat, arms);
  }
  if (has_chatml(tokenizer)) {
    arms.add("template-chatml", "plain ChatML, nothing added", [&](const Conversation& question) {
      return tokenizer.encode(plain_chatml(question));
    });
  }
  arms.add("template-none", "no chat template: the bare text",
           [&](const Conversation& question) { return tokenizer.encode(bare(question)); });
  return std::move(arms.arms);
}

}  // namespace dflash::doctor
