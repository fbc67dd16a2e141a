#include "serve/messages.h"

#include <variant>

#include "data/rows.h"
#include "data/tools.h"
#include "text/prompt.h"

namespace dflash::serve {
namespace {

text::Message read_message(const OrderedJson& turn, const std::string& where) {
  Fields fields(turn, where);
  for (const char* name :
       {"role", "content", "tool_calls", "reasoning_content", "reasoning", "thinking"}) {
    fields.find(name);  // data/rows reads them
  }
  for (const char* name : {"name", "tool_call_id"}) fields.text(name);  // and these
  for (const char* name : {"refusal", "audio", "function_call"}) {
    fields.expect_neutral(name, {nullptr});
  }
  fields.expect_neutral("annotations", {OrderedJson::array()});
  fields.expect_all_read();
  const auto parsed = data::parse_message(turn);
  if (const auto* rejected = std::get_if<data::Rejected>(&parsed)) {
    throw ApiError({.param = where},
                   fmt::format("{}: {}{}{}", where, rejected->reason,
                               rejected->detail.empty() ? "" : ": ", rejected->detail));
  }
  return std::get<text::Message>(parsed);
}

std::vector<text::Message> read_messages(Fields& fields) {
  const OrderedJson* turns = fields.find("messages");
  if (turns == nullptr)
    throw ApiError({.param = "messages"}, "messages: expected a list, got none");
  if (!turns->is_array() || turns->empty()) {
    refuse_field("messages", "a list of at least one message", *turns);
  }
  std::vector<text::Message> messages;
  for (size_t i = 0; i < turns->size(); ++i) {
    messages.push_back(read_message((*turns)[i], fmt::format("messages[{}]", i)));
  }
  if (messages.back().role == "assistant") {
    throw ApiError({.param = "messages"},
                   "messages: expected the last one to be the user's or a tool's, got the "
                   "assistant's: an answer that was begun is not gone on with");
  }
  return messages;
}

OrderedJson read_tools(Fields& fields) {
  fields.expect_neutral("tool_choice", {"auto"});
  fields.expect_neutral("parallel_tool_calls", {true});
  const OrderedJson* tools = fields.find("tools");
  if (tools == nullptr) return nullptr;
  try {
    return data::canonical_tools(*tools);
  } catch (const Error& error) {
    throw ApiError({.param = "tools"}, error.what());
  }
}

const text::ChatTemplate& choose_template(Fields& fields, const Served& served) {
  const OrderedJson* arguments = fields.find("chat_template_kwargs");
  if (arguments == nullptr) return served.chat;
  Fields inner(*arguments, "chat_template_kwargs");
  const std::optional<bool> thinking = inner.boolean("enable_thinking");
  inner.expect_all_read();
  if (!thinking) return served.chat;
  const auto& chosen = *thinking ? served.thinking : served.no_thinking;
  if (chosen) return *chosen;
  throw ApiError({.param = "chat_template_kwargs.enable_thinking"},
                 "chat_template_kwargs.enable_thinking: this model's chat template has no thinking "
                 "switch");
}

}  // namespace

std::vector<int64_t> read_chat_prompt(Fields& fields, const Served& served) {
  const text::Conversation conversation = {.messages = read_messages(fields),
                                           .tools = read_tools(fields)};
  const text::ChatTemplate& chat = choose_template(fields, served);
  text::EncodedPrompt prompt = text::encode_whole_prompt(*served.tokenizer, chat, conversation);
  if (prompt.refused.empty()) return std::move(prompt.ids);
  throw ApiError({.param = "messages"}, fmt::format("messages: {}", prompt.why()));
}

}  // namespace dflash::serve
