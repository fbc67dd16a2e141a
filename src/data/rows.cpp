#include "data/rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/fields.h"
#include "data/tools.h"
#include "text/unicode.h"

namespace dflash::data {
namespace {

/// Our word for a role; nothing for a role we do not know.
std::optional<std::string> known_role(const std::string& role) {
  static const std::map<std::string, std::string, std::less<>> kRoles = {
      {"system", "system"}, {"developer", "developer"}, {"user", "user"},
      {"human", "user"},    {"assistant", "assistant"}, {"gpt", "assistant"},
      {"tool", "tool"},     {"function", "tool"},       {"observation", "tool"}};
  const auto found = kRoles.find(role);
  return found == kRoles.end() ? std::nullopt : std::optional(found->second);
}

/// Pictures and sounds: an answer to them is no answer to the text alone.
std::optional<Rejected> check_only_text(const OrderedJson& holder) {
  for (const char* name :
       {"images", "image", "image_url", "audios", "audio", "input_audio", "videos", "video"}) {
    const OrderedJson* found = field(holder, name);
    if (found && !is_empty(*found)) return Rejected{"something that is no text", name};
  }
  return std::nullopt;
}

/// At most so many bytes, whole characters.
std::string shortened(const std::string& whole, size_t size) {
  std::string out = whole.substr(0, size);
  out.resize(out.size() - text::truncated_tail_bytes(out));
  return out;
}

bool is_text_part(const OrderedJson& part) {
  static const std::set<std::string, std::less<>> kTypes = {"text", "input_text", "output_text"};
  const OrderedJson* type = field(part, "type");
  return !type || (type->is_string() && kTypes.contains(type->get_ref<const std::string&>()));
}

/// Text, or a list of text parts ({"type": "text", "text": ...}).
std::optional<std::string> text_of(const OrderedJson& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return std::nullopt;
  std::string text;
  for (const OrderedJson& part : content) {
    const OrderedJson* piece = part.is_object() ? field(part, "text") : nullptr;
    if (!piece || !piece->is_string() || !is_text_part(part) || check_only_text(part)) {
      return std::nullopt;
    }
    text += piece->get_ref<const std::string&>();
  }
  return text;
}

/// The text of the one field that has some; empty where all are absent or empty.
std::optional<Rejected> read_text(const OrderedJson& record,
                                  std::initializer_list<const char*> names, std::string& text) {
  for (const char* name : names) {
    const OrderedJson* found = field(record, name);
    if (!found || is_empty(*found)) continue;
    const auto said = text_of(*found);
    if (!said) return Rejected{fmt::format("{} is not text", name), found->type_name()};
    if (!text.empty() && text != *said) {
      return Rejected{fmt::format("{} that differ", fmt::join(names, " and ")), ""};
    }
    text = *said;
  }
  return std::nullopt;
}

/// The first field that is there decides, an empty one too (PREP-12, PREP-13); in the order of the
/// chat templates.
std::optional<Rejected> read_reasoning(const OrderedJson& turn, text::Message& message) {
  const auto* reasoning = first_field(turn, {"reasoning_content", "thinking", "reasoning"});
  if (!reasoning) return std::nullopt;
  if (!is_empty(*reasoning)) {
    if (!reasoning->is_string()) return Rejected{"reasoning is not text", reasoning->type_name()};
    if (message.role != "assistant") return Rejected{"reasoning outside an answer", message.role};
  }
  const bool kept = message.role == "assistant" && reasoning->is_string();
  if (kept) message.more["reasoning_content"] = *reasoning;
  return std::nullopt;
}

/// What the one field with something in it holds, read; null where all are absent or empty. Errors:
/// two that say different things.
OrderedJson only_filled(const OrderedJson& holder, std::initializer_list<const char*> names,
                        OrderedJson (*read)(const OrderedJson&)) {
  OrderedJson only;
  for (const char* name : names) {
    const OrderedJson* found = field(holder, name);
    OrderedJson value = found ? read(*found) : OrderedJson();
    if (value.is_null() || value == only) continue;
    if (!only.is_null()) fail("{}: expected one of {}, got more", name, fmt::join(names, ", "));
    only = std::move(value);
  }
  return only;
}

std::optional<Rejected> read_calls(const OrderedJson& turn, text::Message& message) {
  try {
    OrderedJson calls = only_filled(turn, {"tool_calls", "function_call", "tool_call", "toolCalls"},
                                    canonical_calls);
    if (calls.is_null()) return std::nullopt;
    if (message.role != "assistant") return Rejected{"tool calls outside an answer", message.role};
    message.more["tool_calls"] = std::move(calls);
  } catch (const Error& error) {
    return Rejected{"tool calls that cannot be read", error.what()};
  }
  return std::nullopt;
}

std::optional<Rejected> read_tools(const OrderedJson& record, OrderedJson& tools) {
  try {
    tools = only_filled(record, {"tools", "functions"}, canonical_tools);
  } catch (const Error& error) {
    return Rejected{"tools that cannot be read", error.what()};
  }
  return std::nullopt;
}

bool has_calls(const text::Message& message) {
  return message.more.contains("tool_calls");
}

std::optional<Rejected> read_turn(const OrderedJson& turn, text::Message& message) {
  if (!turn.is_object()) return Rejected{"message is not an object", turn.type_name()};
  const OrderedJson *role = nullptr, *content = nullptr;
  if (auto rejected = one_of(turn, {"role", "from"}, role)) return rejected;
  if (auto rejected = one_of(turn, {"content", "value"}, content)) return rejected;
  if (!role || !role->is_string()) return Rejected{"message without a role", ""};
  const auto known = known_role(role->get<std::string>());
  if (!known) return Rejected{"unknown role", shortened(role->get<std::string>(), 40)};
  message.role = *known;
  if (auto rejected = check_only_text(turn)) return rejected;
  if (auto rejected = read_reasoning(turn, message)) return rejected;
  if (auto rejected = read_calls(turn, message)) return rejected;
  for (const char* name : {"name", "tool_call_id"}) {
    const OrderedJson* value = field(turn, name);
    if (value && value->is_string() && !is_empty(*value)) message.more[name] = *value;
  }
  if (!content && has_calls(message)) return std::nullopt;  // nothing but the calls
  const auto text = content ? text_of(*content) : std::nullopt;
  if (!text) return Rejected{"message content is not text", *known};
  message.content = *text;
  return std::nullopt;
}

/// The roles that may come after a message, or begin (null). Tool messages follow any answer: its
/// calls may stand in its text.
std::vector<std::string_view> roles_after(const text::Message* last) {
  if (!last) return {"system", "developer", "user"};
  if (last->role == "system") return {"developer", "user"};
  if (last->role == "developer") return {"user"};
  if (last->role == "user") return {"assistant"};
  if (last->role == "tool") return {"tool", "assistant"};
  if (has_calls(*last)) return {"tool"};
  return {"user", "tool"};
}

std::optional<Rejected> check_order(const std::vector<text::Message>& messages) {
  const text::Message* last = nullptr;
  for (const text::Message& message : messages) {
    const auto roles = roles_after(last);
    if (std::find(roles.begin(), roles.end(), message.role) == roles.end()) {
      return Rejected{"broken order of roles",
                      fmt::format("message {} is {}, expected {}", &message - messages.data(),
                                  message.role, fmt::join(roles, " or "))};
    }
    last = &message;
  }
  const bool blank = std::any_of(messages.begin(), messages.end(), [](const text::Message& turn) {
    return turn.role == "user" && turn.content.find_first_not_of(" \t\r\n") == std::string::npos;
  });
  if (blank) return Rejected{"empty question", ""};
  const bool said = last && last->role != "system" && last->role != "developer";
  return said ? std::nullopt : std::optional(Rejected{"empty conversation", ""});
}

using Messages = std::vector<text::Message>;

std::optional<Rejected> read_turns(const OrderedJson& turns, Messages& messages) {
  if (!turns.is_array()) return Rejected{"conversation is not a list", turns.type_name()};
  for (const OrderedJson& turn : turns) {
    if (auto rejected = read_turn(turn, messages.emplace_back())) return rejected;
  }
  return std::nullopt;
}

/// Earlier turns of a question: [[question, answer], ...].
std::optional<Rejected> read_history(const OrderedJson& record, Messages& messages) {
  const OrderedJson* history = field(record, "history");
  if (!history || is_empty(*history)) return std::nullopt;
  const Rejected other{"history is not a list of questions and answers", history->type_name()};
  if (!history->is_array()) return other;
  for (const OrderedJson& turn : *history) {
    const bool pair =
        turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
    if (!pair) return other;
    messages.push_back({"user", turn[0].get<std::string>()});
    messages.push_back({"assistant", turn[1].get<std::string>()});
  }
  return std::nullopt;
}

/// Text under one of several names; absent fields leave `text` as it is.
std::optional<Rejected> read_string(const OrderedJson& record,
                                    std::initializer_list<const char*> names,
                                    std::optional<std::string>& text) {
  const OrderedJson* found = nullptr;
  if (auto rejected = one_of(record, names, found)) return rejected;
  if (!found) return std::nullopt;
  if (!found->is_string()) {
    const auto* name = std::find_if(names.begin(), names.end(),
                                    [&](const char* each) { return field(record, each) == found; });
    return Rejected{"prompt or response is not text",
                    fmt::format("{}: expected text, got {}", *name, found->type_name())};
  }
  text = found->get<std::string>();
  return std::nullopt;
}

std::optional<Rejected> read_question(const OrderedJson& record, Messages& messages) {
  std::optional<std::string> question, answer;
  if (auto rejected = read_string(record, {"prompt", "instruction"}, question)) return rejected;
  if (auto rejected = read_string(record, {"response", "completion", "output"}, answer)) {
    return rejected;
  }
  if (auto rejected = read_history(record, messages)) return rejected;
  std::string input;
  if (auto rejected = read_text(record, {"input", "context"}, input)) return rejected;
  messages.push_back({"user", question.value_or("")});
  std::string& asked = messages.back().content;
  if (!input.empty()) asked += (asked.empty() ? "" : "\n\n") + input;
  if (answer) messages.push_back({"assistant", *answer});
  return std::nullopt;
}

/// The record's own system message, where the conversation has none.
std::optional<Rejected> read_system(const OrderedJson& record, Messages& messages) {
  std::string system;
  if (auto rejected = read_text(record, {"system", "system_prompt"}, system)) return rejected;
  if (system.empty()) return std::nullopt;
  if (messages.empty() || messages[0].role != "system") {
    messages.insert(messages.begin(), {"system", system});
  } else if (messages[0].content != system) {
    return Rejected{"two system messages that differ", ""};
  }
  return std::nullopt;
}

/// Some datasets repeat a message in a field of its own.
bool is_said(const Messages& messages, const std::string& text) {
  return text.empty() || std::any_of(messages.begin(), messages.end(), [&](const auto& message) {
           return message.content.find(text) != std::string::npos;
         });
}

std::optional<Rejected> read_messages(const OrderedJson& record, Messages& messages) {
  const OrderedJson* turns = nullptr;
  if (auto rejected = one_of(record, {"messages", "conversations"}, turns)) return rejected;
  const bool asked = first_field(record, {"prompt", "instruction"}) != nullptr;
  if (!turns || (is_empty(*turns) && asked)) return read_question(record, messages);
  for (const char* name : {"history", "input", "context"}) {
    const OrderedJson* more = field(record, name);
    if (more && !is_empty(*more)) return Rejected{"more beside the messages", name};
  }
  if (auto rejected = read_turns(*turns, messages)) return rejected;
  const OrderedJson* prompt = field(record, "prompt");
  if (prompt && prompt->is_string() && !is_said(messages, prompt->get_ref<const std::string&>())) {
    return Rejected{"more beside the messages", "prompt"};
  }
  // An answer beside a conversation that has none at its end would be lost.
  const bool answered = !messages.empty() && messages.back().role == "assistant";
  const OrderedJson* answer = first_field(record, {"response", "completion", "output"});
  if (!answered && answer && !is_empty(*answer)) {
    return Rejected{"more beside the messages", "an answer"};
  }
  return std::nullopt;
}

ParsedRow conversation(const OrderedJson& record) {
  Row row;
  auto& [messages, tools] = row.conversation;
  if (auto rejected = check_only_text(record)) return *rejected;
  if (auto rejected = read_tools(record, tools)) return *rejected;
  if (auto rejected = read_messages(record, messages)) return *rejected;
  if (auto rejected = read_system(record, messages)) return *rejected;
  if (auto rejected = check_order(messages)) return *rejected;
  return row;
}

constexpr uint64_t kMostId = std::numeric_limits<int64_t>::max();

bool read_ids(const OrderedJson& list, std::vector<int64_t>& ids) {
  if (!list.is_array()) return false;
  for (const OrderedJson& id : list) {
    if (!id.is_number_integer()) return false;
    if (id.is_number_unsigned() && id.get<uint64_t>() > kMostId) return false;
    ids.push_back(id.get<int64_t>());
  }
  return true;
}

ParsedRow exact(const OrderedJson& prompt, const OrderedJson& answer) {
  Row row;
  row.kind = Row::Kind::kExactIds;
  if (!read_ids(prompt, row.prompt_ids) || !read_ids(answer, row.answer_ids)) {
    return Rejected{"ids are not a list of whole numbers", ""};
  }
  return row;
}

ParsedRow plain(const OrderedJson& text) {
  if (!text.is_string()) return Rejected{"text is not a string", text.type_name()};
  Row row;
  row.kind = Row::Kind::kPlainText;
  row.text = text.get<std::string>();
  return row;
}

ParsedRow by_shape(const OrderedJson& record) {
  if (!record.is_object()) return Rejected{"not a JSON object", record.type_name()};
  const OrderedJson* prompt_ids = field(record, "prompt_ids");
  const OrderedJson* answer_ids = field(record, "answer_ids");
  if (prompt_ids && answer_ids) return exact(*prompt_ids, *answer_ids);
  if (first_field(record, {"messages", "conversations", "prompt", "instruction"})) {
    return conversation(record);
  }
  if (const OrderedJson* text = field(record, "text")) return plain(*text);
  return Rejected{"no known fields", ""};
}

ParsedRow with_id(const OrderedJson& record) {
  ParsedRow parsed = by_shape(record);
  Row* row = std::get_if<Row>(&parsed);
  if (!row) return parsed;
  if (auto rejected = read_id(record, "id", row->id)) return *rejected;
  return parsed;
}

/// The record or a turn of it.
bool has_untrained_turn(const OrderedJson& record) {
  if (!record.is_object()) return false;
  if (is_untrained(record)) return true;
  for (const char* name : {"messages", "conversations"}) {
    const OrderedJson* turns = field(record, name);
    if (!turns || !turns->is_array()) continue;
    if (std::any_of(turns->begin(), turns->end(), is_untrained)) return true;
  }
  return false;
}

}  // namespace

ParsedRow parse_row(const OrderedJson& record) {
  if (has_untrained_turn(record)) return Rejected{"kept out of training by its author", ""};
  return with_id(record);
}

std::variant<text::Message, Rejected> parse_message(const OrderedJson& turn) {
  text::Message message;
  if (auto rejected = read_turn(turn, message)) return *rejected;
  return message;
}

ParsedRow parse_prompt(const OrderedJson& record) {
  ParsedRow parsed = with_id(record);
  Row* row = std::get_if<Row>(&parsed);
  if (row == nullptr) return parsed;
  if (row->kind != Row::Kind::kChat) {
    return Rejected{"a text or ids, expected a prompt or messages", ""};
  }
  Messages& messages = row->conversation.messages;
  if (messages.back().role == "assistant") messages.pop_back();
  return parsed;
}

}  // namespace dflash::data
