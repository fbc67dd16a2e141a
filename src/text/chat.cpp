#include "text/chat.h"

#include <algorithm>

#include "base/error.h"

namespace dflash::text {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

// The family's template is one line, the same but for an optional first part that inserts a
// default system turn.
constexpr std::string_view kLoop = "{% for message in messages %}";
constexpr std::string_view kDefaultBegin =
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n";
constexpr std::string_view kDefaultEnd = "<|im_end|>\n' }}{% endif %}";
constexpr std::string_view kBody =
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
// Some files state the default of the flag first; it changes nothing.
constexpr std::string_view kFlagDefault =
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}"
    "{% endif %}";

void replace_all(std::string_view what, std::string_view with, std::string& text) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    text.replace(at, what.size(), with);
    at += with.size();
  }
}

/// Removes `part` from the front of `text` if it is there.
bool take(std::string_view part, std::string_view& text) {
  if (!text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}

[[noreturn]] void unknown_template(const Tokenizer& tokenizer) {
  const std::string& text = tokenizer.chat_template();
  if (text.empty()) {
    fail(
        "chat template: the model's files bring none\n  hint: supported are ChatML and SmolLM2's "
        "ChatML with a default system turn; an instruct model's files hold one");
  }
  std::string shown = text.substr(0, 60);
  replace_all("\n", "\\n", shown);
  fail(
      "chat template: '{}...' ({} bytes) is not supported\n  hint: supported are ChatML and "
      "SmolLM2's ChatML with a default system turn",
      shown, text.size());
}

void check_roles(const std::vector<Message>& messages) {
  if (messages.empty()) fail("conversation: it has no messages");
  for (const Message& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      fail("conversation: role '{}': expected system, user or assistant", message.role);
    }
  }
  const size_t first = messages[0].role == "system" ? 1 : 0;
  if (first < messages.size() && messages[first].role == "assistant") {
    fail("conversation: it begins with the assistant: expected a user message first");
  }
}

void append(std::string_view text, bool supervised, std::vector<Segment>& segments) {
  if (!segments.empty() && segments.back().supervised == supervised) {
    segments.back().text += text;
  } else {
    segments.push_back({std::string(text), supervised});
  }
}

}  // namespace

ChatTemplate ChatTemplate::refusing(std::string why) {
  ChatTemplate chat;
  chat.name_ = "none";
  chat.why_not_ = std::move(why);
  return chat;
}

ChatTemplate ChatTemplate::for_tokenizer(const Tokenizer& tokenizer) {
  std::string text = tokenizer.chat_template();
  replace_all("\\n", "\n", text);  // files write the line break in either form
  if (text.ends_with('\n')) text.pop_back();
  std::string_view rest = text;
  ChatTemplate chat;
  chat.name_ = "chatml";
  take(kFlagDefault, rest);
  if (!take(kLoop, rest)) unknown_template(tokenizer);
  if (take(kDefaultBegin, rest)) {
    const size_t end = rest.find(kDefaultEnd);
    if (end == std::string_view::npos) unknown_template(tokenizer);
    chat.name_ = "chatml-default-system";
    chat.default_system_ = rest.substr(0, end);
    chat.has_default_system_ = true;
    rest.remove_prefix(end + kDefaultEnd.size());
    // A quote or an escape would end or change the text in Jinja.
    if (chat.default_system_.find_first_of("'\\") != std::string::npos) unknown_template(tokenizer);
  }
  if (rest != kBody) unknown_template(tokenizer);
  return chat;
}

std::vector<Segment> ChatTemplate::render(const std::vector<Message>& messages,
                                          bool generation_prompt) const {
  if (!why_not_.empty()) throw Error(why_not_);
  check_roles(messages);
  std::vector<Segment> segments;
  const auto open = [&](std::string_view role) {
    append(fmt::format("{}{}\n", kStart, role), false, segments);
  };
  if (has_default_system_ && messages[0].role != "system") {
    open("system");
    append(fmt::format("{}{}\n", default_system_, kEnd), false, segments);
  }
  for (const Message& message : messages) {
    const bool supervised = message.role == "assistant";
    open(message.role);
    append(message.content, supervised, segments);
    append(kEnd, supervised, segments);
    append("\n", false, segments);  // the template's, not the model's
  }
  if (generation_prompt) open("assistant");
  return segments;
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
                                   const std::vector<Message>& messages) {
  return encode_segments(tokenizer, chat.render(messages, true)).ids;
}

}  // namespace dflash::text
