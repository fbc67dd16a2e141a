#include "text/chat.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "base/error.h"
#include "text/jinja/python_text.h"

namespace dflash::text {
namespace {

constexpr std::array<const char*, 3> kReasoningFields = {"reasoning_content", "thinking",
                                                         "reasoning"};

void check_roles(const std::vector<Message>& messages) {
  static constexpr std::array<std::string_view, 5> roles = {"system", "developer", "user",
                                                            "assistant", "tool"};
  if (messages.empty()) fail("conversation: it has no messages");
  for (const Message& message : messages) {
    if (std::find(roles.begin(), roles.end(), message.role) == roles.end()) {
      fail("conversation: role '{}': expected system, developer, user, assistant or tool",
           message.role);
    }
  }
  const bool instructed = messages[0].role == "system" || messages[0].role == "developer";
  const size_t first = instructed ? 1 : 0;
  if (first < messages.size() && messages[first].role == "assistant") {
    fail("conversation: it begins with the assistant: expected a user message first");
  }
}

/// The message as templates see it: fields without a value are absent, and reasoning goes by each
/// of its names, the first that is there deciding (PREP-12, PREP-13; transformers does the same).
OrderedJson as_variable(const Message& message) {
  OrderedJson fields = {{"role", message.role}, {"content", message.content}};
  for (const auto& [key, value] : message.more.items()) {
    if (key != "role" && !value.is_null()) fields[key] = value;
  }
  for (const char* name : kReasoningFields) {
    const auto found = fields.find(name);
    if (found == fields.end()) continue;
    const OrderedJson reasoning = *found;
    if (!fields.contains("thinking")) fields["thinking"] = reasoning;
    fields["reasoning_content"] = reasoning;
    break;
  }
  return fields;
}

std::string name_of(const std::string& text, const ChatOptions& options) {
  std::string name = "custom";
  if (text.find("[INST]") != std::string::npos) name = "mistral";
  if (text.find("<start_of_turn>") != std::string::npos) name = "gemma";
  if (text.find("<|start_header_id|>") != std::string::npos) name = "llama3";
  if (text.find("<|im_start|>") != std::string::npos) name = "chatml";
  if (!options.enable_thinking.has_value()) return name;
  return name + (*options.enable_thinking ? ", thinking" : ", no thinking");
}

void append(std::string_view text, bool supervised, std::vector<Segment>& segments) {
  if (text.empty()) return;
  if (!segments.empty() && segments.back().supervised == supervised) {
    segments.back().text += text;
  } else {
    segments.push_back({std::string(text), supervised});
  }
}

/// The beginning of a text for a message, on one line.
std::string shown(std::string_view text) {
  return jinja::quoted_text(text.substr(0, std::min<size_t>(text.size(), 60)));
}

}  // namespace

/// One answer: the text that serving puts before it, and what the model then writes.
struct ChatTemplate::Turn {
  std::string prompt, answer;
  std::string rest;  // what the template adds after the answer's end

  std::string whole() const { return prompt + answer; }
};

ChatTemplate ChatTemplate::refusing(std::string why) {
  ChatTemplate chat;
  chat.name_ = "none";
  chat.why_not_ = std::move(why);
  return chat;
}

ChatTemplate ChatTemplate::for_tokenizer(const Tokenizer& tokenizer, ChatOptions options) {
  const std::string& text = tokenizer.chat_template();
  if (text.empty()) {
    fail(
        "chat template: the model's files bring none\n  hint: an instruct model's files hold one, "
        "in tokenizer_config.json, chat_template.jinja or tokenizer.chat_template");
  }
  ChatTemplate chat;
  chat.name_ = name_of(text, options);
  chat.template_ = std::make_shared<const jinja::Jinja>(text);
  chat.variables_ = OrderedJson::object();
  for (const auto& [name, token] : tokenizer.special_tokens()) chat.variables_[name] = token;
  chat.variables_["documents"] = nullptr;
  if (options.enable_thinking.has_value()) {
    chat.variables_["enable_thinking"] = *options.enable_thinking;
  }
  chat.variables_.update(options.variables);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  chat.now_seconds_ =
      options.now_seconds.value_or(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  for (const int64_t id : tokenizer.stop_ids()) chat.ends_.push_back(tokenizer.token_bytes(id));
  if (options.enable_thinking.has_value() && !chat.knows_thinking()) {
    fail(
        "chat template: {}: expected one with a thinking switch (enable_thinking), got one that "
        "puts a conversation the same way with thinking on and off\n  hint: leave --thinking out",
        tokenizer.chat_template_source());
  }
  return chat;
}

/// By rendering: an opened answer, a system prompt and earlier reasoning are where templates
/// differ.
bool ChatTemplate::knows_thinking() const {
  const Message user{"user", "Hi"}, system{"system", "Be brief."};
  const Message answer{"assistant", "Hello", {{"reasoning_content", "A greeting."}}};
  const std::vector<Conversation> probes = {{{user}}, {{system, user}}, {{user, answer, user}}};
  const auto put = [&](const Conversation& probe, bool thinking) -> std::optional<std::string> {
    ChatTemplate chat = *this;
    chat.variables_["enable_thinking"] = thinking;
    try {
      return chat.text(probe, true);
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  return std::any_of(probes.begin(), probes.end(), [&](const Conversation& probe) {
    return put(probe, true) != put(probe, false);
  });
}

jinja::Rendered ChatTemplate::run(const Conversation& conversation, bool generation_prompt) const {
  if (!why_not_.empty()) throw Error(why_not_);
  check_roles(conversation.messages);
  OrderedJson variables = variables_;
  OrderedJson& messages = variables["messages"] = OrderedJson::array();
  for (const Message& message : conversation.messages) messages.push_back(as_variable(message));
  variables["tools"] = conversation.tools;
  variables["add_generation_prompt"] = generation_prompt;
  return template_->render(variables, now_seconds_);
}

std::string ChatTemplate::text(const Conversation& conversation, bool generation_prompt) const {
  return run(conversation, generation_prompt).text;
}

/// Up to and with the last end token that only white space follows; all of it where there is none.
size_t ChatTemplate::answer_end(std::string_view answer) const {
  for (const std::string& end : ends_) {
    const size_t at = end.empty() ? std::string_view::npos : answer.rfind(end);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = answer.substr(at + end.size());
    if (jinja::strip(rest, std::nullopt, jinja::Ends::kBoth).empty()) return at + end.size();
  }
  return answer.size();
}

std::vector<ChatTemplate::Turn> ChatTemplate::answers_of(const Conversation& conversation) const {
  if (!why_not_.empty()) throw Error(why_not_);
  check_roles(conversation.messages);
  std::vector<Turn> turns;
  Conversation part;
  part.tools = conversation.tools;
  for (const Message& message : conversation.messages) {
    if (message.role == "assistant") {
      Turn turn;
      turn.prompt = text(part, true);
      part.messages.push_back(message);
      const std::string with_answer = text(part, false);
      if (!with_answer.starts_with(turn.prompt)) {
        const auto apart = std::mismatch(turn.prompt.begin(), turn.prompt.end(),
                                         with_answer.begin(), with_answer.end());
        const auto common = static_cast<size_t>(apart.first - turn.prompt.begin());
        fail(
            "chat template: message {} cannot be supervised: the prompt for it goes on with {}, "
            "its own text with {}\n"
            "  hint: answers made by 'regenerate' keep their exact ids and need no template",
            part.messages.size() - 1, shown(std::string_view(turn.prompt).substr(common)),
            shown(std::string_view(with_answer).substr(common)));
      }
      const std::string_view rest = std::string_view(with_answer).substr(turn.prompt.size());
      const size_t end = answer_end(rest);
      turn.answer = rest.substr(0, end);
      turn.rest = rest.substr(end);
      turns.push_back(std::move(turn));
    } else {
      part.messages.push_back(message);
    }
  }
  return turns;
}

/// {% generation %} says what the model writes, where prompts alone do not. In one row, so only for
/// a template that keeps earlier answers as they were written.
std::vector<Segment> ChatTemplate::tagged_row(const Conversation& conversation,
                                              const std::string& why) const {
  const jinja::Rendered rendered = run(conversation, false);
  if (!rendered.spans_complete) throw Error(why);
  Conversation part = {.tools = conversation.tools};
  for (const Message& message : conversation.messages) {
    part.messages.push_back(message);
    if (message.role != "assistant") continue;
    const std::string written = text(part, false);
    if (!rendered.text.starts_with(written.substr(0, answer_end(written)))) throw Error(why);
  }
  std::vector<Segment> row;
  size_t at = 0;
  for (const auto& [begin, end] : rendered.generated) {
    append(std::string_view(rendered.text).substr(at, begin - at), false, row);
    append(std::string_view(rendered.text).substr(begin, end - begin), true, row);
    at = end;
  }
  append(std::string_view(rendered.text).substr(at), false, row);
  return row;
}

std::vector<std::vector<Segment>> ChatTemplate::training_rows(
    const Conversation& conversation) const {
  std::vector<Turn> turns;
  try {
    turns = answers_of(conversation);
  } catch (const Error& error) {
    if (template_ == nullptr || !template_->has_generation_tags()) throw;
    return {tagged_row(conversation, error.what())};
  }
  const std::string whole = text(conversation, false);
  if (turns.empty()) return {{{whole, false}}};
  std::vector<std::vector<Segment>> rows;
  std::vector<bool> done(turns.size(), false);
  for (size_t last = turns.size(); last-- > 0;) {
    if (done[last]) continue;
    // The last answer's row goes on to the end of the conversation where that only adds.
    std::string text = turns[last].whole() + turns[last].rest;
    if (last + 1 == turns.size() && whole.starts_with(turns[last].whole())) text = whole;
    std::vector<Segment> row;
    size_t at = 0;
    for (size_t i = 0; i <= last; ++i) {
      const size_t begin = turns[i].prompt.size(), end = begin + turns[i].answer.size();
      if (done[i] || begin < at || !text.starts_with(turns[i].whole())) continue;
      append(std::string_view(text).substr(at, begin - at), false, row);
      append(std::string_view(text).substr(begin, end - begin), true, row);
      done[i] = true;
      at = end;
    }
    append(std::string_view(text).substr(at), false, row);
    rows.push_back(std::move(row));
  }
  std::reverse(rows.begin(), rows.end());
  return rows;
}

std::vector<Segment> ChatTemplate::render(const std::vector<Message>& messages,
                                          bool generation_prompt) const {
  if (generation_prompt) return {{text({messages}, true), false}};
  std::vector<std::vector<Segment>> rows = training_rows({messages});
  if (rows.size() > 1) {
    fail("chat template: it rewrites earlier answers, so the conversation takes {} rows",
         rows.size());
  }
  return std::move(rows[0]);
}

Encoded encode_segments(const Tokenizer& tokenizer, const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  EncodedText encoded = tokenizer.encode_with_offsets(text);
  Encoded out;
  out.loss_mask.reserve(encoded.ids.size());
  size_t segment = 0;
  int64_t segment_end = segments.empty() ? 0 : static_cast<int64_t>(segments[0].text.size());
  for (const int64_t begin : encoded.begins) {
    while (begin >= segment_end) {
      DF_ASSERT(segment + 1 < segments.size(), "token at {} of {} bytes", begin, text.size());
      segment_end += static_cast<int64_t>(segments[++segment].text.size());
    }
    out.loss_mask.push_back(segments[segment].supervised ? 1 : 0);
  }
  out.ids = std::move(encoded.ids);
  return out;
}

std::vector<int64_t> encode_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                   const Conversation& conversation) {
  return encode_segments(tokenizer, {{chat.text(conversation, true), false}}).ids;
}

}  // namespace dflash::text
