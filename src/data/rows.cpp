#include "data/rows.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

namespace dflash::data {
namespace {

const Json* field(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found == record.end() || found->is_null() ? nullptr : &*found;
}

const Json* first_field(const Json& record, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const Json* found = field(record, name)) return found;
  }
  return nullptr;
}

bool is_empty(const Json& value) {
  return value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty();
}

/// Tools come as a list, or as JSON text of one.
bool has_tools(const Json& tools) {
  if (!tools.is_string() || is_empty(tools)) return !is_empty(tools);
  const Json inner = Json::parse(tools.get_ref<const std::string&>(), nullptr, false);
  return inner.is_discarded() || !inner.empty();
}

/// Our word for a role; nothing for a role we do not know.
std::optional<std::string> known_role(const std::string& role) {
  for (const char* user : {"user", "human"}) {
    if (role == user) return "user";
  }
  for (const char* assistant : {"assistant", "gpt"}) {
    if (role == assistant) return "assistant";
  }
  if (role == "system") return "system";
  return std::nullopt;
}

/// Text, or a list of text parts ({"type": "text", "text": ...}).
std::optional<std::string> text_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return std::nullopt;
  std::string text;
  for (const Json& part : content) {
    const Json* piece = part.is_object() ? field(part, "text") : nullptr;
    if (!piece || !piece->is_string()) return std::nullopt;
    text += piece->get_ref<const std::string&>();
  }
  return text;
}

/// Reasoning and tool calls have no place in the templates we render. The first field that is there
/// decides, an empty one too (PREP-12, PREP-13).
std::optional<Rejected> check_extras(const Json& turn) {
  const Json* reasoning = first_field(turn, {"reasoning_content", "reasoning", "thinking"});
  if (reasoning && !is_empty(*reasoning)) {
    return Rejected{"has reasoning, which the chat template does not render", ""};
  }
  const Json* calls = first_field(turn, {"tool_calls", "function_call"});
  if (calls && !is_empty(*calls)) {
    return Rejected{"has tool calls, which the chat template does not render", ""};
  }
  return std::nullopt;
}

std::optional<Rejected> read_turn(const Json& turn, text::Message& message) {
  if (!turn.is_object()) return Rejected{"message is not an object", turn.type_name()};
  const Json* role = first_field(turn, {"role", "from"});
  if (!role || !role->is_string()) return Rejected{"message without a role", ""};
  const auto known = known_role(role->get<std::string>());
  if (!known) return Rejected{"unknown role", role->get<std::string>().substr(0, 40)};
  if (auto rejected = check_extras(turn)) return rejected;
  const Json* content = first_field(turn, {"content", "value"});
  const auto text = content ? text_of(*content) : std::nullopt;
  if (!text) return Rejected{"message content is not text", *known};
  message = {*known, *text};
  return std::nullopt;
}

/// System only first; then user and assistant in turn.
std::optional<Rejected> check_order(const std::vector<text::Message>& messages) {
  const size_t first = !messages.empty() && messages[0].role == "system" ? 1 : 0;
  if (messages.size() == first) return Rejected{"empty conversation", ""};
  for (size_t i = first; i < messages.size(); ++i) {
    const char* expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role != expected) {
      return Rejected{"broken order of roles",
                      fmt::format("message {} is {}, expected {}", i, messages[i].role, expected)};
    }
  }
  return std::nullopt;
}

ParsedRow conversation(const Json& turns, const Json& record) {
  if (!turns.is_array()) return Rejected{"conversation is not a list", turns.type_name()};
  const Json* tools = field(record, "tools");
  if (tools && has_tools(*tools)) {
    return Rejected{"has tools, which the chat template does not render", ""};
  }
  Row row;
  for (const Json& turn : turns) {
    if (auto rejected = read_turn(turn, row.messages.emplace_back())) return *rejected;
  }
  if (auto rejected = check_order(row.messages)) return *rejected;
  return row;
}

ParsedRow question(const Json& prompt, const Json* input, const Json* answer) {
  if (!prompt.is_string() || (answer && !answer->is_string())) {
    return Rejected{"prompt or response is not text", ""};
  }
  Row row;
  row.messages.push_back({"user", prompt.get<std::string>()});
  if (input && input->is_string() && !is_empty(*input)) {
    row.messages[0].content += "\n\n" + input->get<std::string>();
  }
  if (answer) row.messages.push_back({"assistant", answer->get<std::string>()});
  return row;
}

bool read_ids(const Json& list, std::vector<int64_t>& ids) {
  if (!list.is_array()) return false;
  for (const Json& id : list) {
    if (!id.is_number_integer()) return false;
    ids.push_back(id.get<int64_t>());
  }
  return true;
}

ParsedRow exact(const Json& prompt, const Json& answer) {
  Row row;
  row.kind = Row::Kind::kExactIds;
  if (!read_ids(prompt, row.prompt_ids) || !read_ids(answer, row.answer_ids)) {
    return Rejected{"ids are not a list of whole numbers", ""};
  }
  return row;
}

ParsedRow plain(const Json& text) {
  if (!text.is_string()) return Rejected{"text is not a string", text.type_name()};
  Row row;
  row.kind = Row::Kind::kPlainText;
  row.text = text.get<std::string>();
  return row;
}

ParsedRow by_shape(const Json& record) {
  const Json* prompt_ids = field(record, "prompt_ids");
  const Json* answer_ids = field(record, "answer_ids");
  if (prompt_ids && answer_ids) return exact(*prompt_ids, *answer_ids);
  if (const Json* turns = first_field(record, {"messages", "conversations"})) {
    return conversation(*turns, record);
  }
  if (const Json* prompt = field(record, "prompt")) {
    return question(*prompt, nullptr, first_field(record, {"response", "completion"}));
  }
  if (const Json* prompt = field(record, "instruction")) {
    return question(*prompt, field(record, "input"), first_field(record, {"output", "response"}));
  }
  if (const Json* text = field(record, "text")) return plain(*text);
  return Rejected{"no known fields", ""};
}

}  // namespace

ParsedRow parse_row(const Json& record) {
  if (!record.is_object()) return Rejected{"line is not a JSON object", record.type_name()};
  ParsedRow parsed = by_shape(record);
  Row* row = std::get_if<Row>(&parsed);
  if (const Json* id = field(record, "id"); row && id) {
    row->id = id->is_string() ? id->get<std::string>() : id->dump();
  }
  return parsed;
}

}  // namespace dflash::data
