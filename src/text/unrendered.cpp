#include "text/unrendered.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace dflash::text {
namespace {

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

/// Marks are added to what is there, so that whatever a template asks about a part stays as it is.
/// They are digits: no escape and no filter changes them.
class Marks {
 public:
  std::string next(const char* part) {
    marks_.emplace_back(fmt::format("7310264859{:06}", marks_.size()), part);
    return marks_.back().first;
  }
  void add_to(std::string& text, const char* part) {
    if (!is_blank(text)) text += next(part);
  }
  bool empty() const { return marks_.empty(); }
  void clear() { marks_.clear(); }

  std::string first_missing(std::string_view rendered) const {
    for (const auto& [mark, part] : marks_) {
      if (rendered.find(mark) == std::string_view::npos) return part;
    }
    return "";
  }

 private:
  std::vector<std::pair<std::string, const char*>> marks_;
};

OrderedJson& function_in(OrderedJson& entry) {
  return entry.contains("function") ? entry["function"] : entry;
}

void mark_name(OrderedJson& entry, const char* part, Marks& marks) {
  OrderedJson& name = function_in(entry)["name"];
  if (!name.is_string()) return;
  const std::string old = name.get<std::string>();
  std::string& marked = name.get_ref<std::string&>();
  marks.add_to(marked, part);
  // Kimi's templates show a call's name as a part of its id.
  if (!entry.contains("id") || !entry["id"].is_string() || old.empty()) return;
  std::string& id = entry["id"].get_ref<std::string&>();
  constexpr std::string_view kPrefix = "functions.";
  const size_t at = id.starts_with(kPrefix) ? kPrefix.size() : 0;
  if (id.compare(at, old.size() + 1, old + ":") == 0) id.replace(at, old.size(), marked);
}

/// A template may show a tool's name and leave out what it takes.
void mark_tool(OrderedJson& tool, Marks& marks) {
  if (!tool.is_object()) return;
  mark_name(tool, "tools", marks);
  OrderedJson& function = function_in(tool);
  const auto description = function.find("description");
  if (description != function.end() && description->is_string()) {
    marks.add_to(description->get_ref<std::string&>(), "descriptions of tools");
  }
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || !parameters->is_object()) return;
  const auto properties = parameters->find("properties");
  if (properties == parameters->end() || !properties->is_object() || properties->empty()) return;
  const std::string mark = marks.next("parameters of tools");
  (*properties)[mark] = {{"type", "string"}, {"description", mark}};
}

/// Reasoning that stands in the answer's own text: some templates cut it off.
void mark_thoughts(std::string& content, Marks& marks) {
  const size_t end = content.find("</think>");
  if (end == std::string::npos) return;
  const size_t begin = content.rfind("<think>", end);
  const size_t from = begin == std::string::npos ? 0 : begin + std::string_view("<think>").size();
  const size_t last = content.find_last_not_of(" \t\r\n", end - 1);
  if (end == 0 || last == std::string::npos || last < from) return;
  content.insert(last + 1, marks.next("reasoning"));
}

void mark_calls(OrderedJson& calls, Marks& marks) {
  for (OrderedJson& call : calls) {
    if (!call.is_object()) continue;
    mark_name(call, "tool calls", marks);
    OrderedJson& arguments = function_in(call)["arguments"];
    if (arguments.is_object() && !arguments.empty()) {
      const std::string mark = marks.next("arguments of tool calls");
      arguments[mark] = mark;
    } else if (arguments.is_string()) {
      marks.add_to(arguments.get_ref<std::string&>(), "arguments of tool calls");
    }
  }
}

void mark_answer(Message& message, Marks& marks) {
  bool has_reasoning = false;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {  // the first decides
    const auto found = message.more.find(name);
    if (found == message.more.end() || found->is_null()) continue;
    if (found->is_string()) {
      has_reasoning = !is_blank(found->get_ref<const std::string&>());
      marks.add_to(found->get_ref<std::string&>(), "reasoning");
    }
    break;
  }
  if (!has_reasoning) mark_thoughts(message.content, marks);
  const auto calls = message.more.find("tool_calls");
  if (calls == message.more.end() || !calls->is_array() || calls->empty()) return;
  mark_calls(*calls, marks);
  if (!message.more.contains("content")) marks.add_to(message.content, "text beside tool calls");
}

/// Roles whose messages templates are known to skip. Users' are never skipped, and some templates
/// ask how a user's text ends.
void mark(Message& message, Marks& marks) {
  if (message.role == "assistant") return mark_answer(message, marks);
  if (message.more.contains("content")) return;
  if (message.role == "system") marks.add_to(message.content, "a system message");
  if (message.role == "developer") marks.add_to(message.content, "a developer message");
  if (message.role == "tool") marks.add_to(message.content, "tool messages");
}

enum class Ends { kWithAnswer, kAsPrompt };

std::string first_unrendered(const ChatTemplate& chat, const Conversation& conversation,
                             Ends ends) {
  Marks marks;
  Conversation part = {.tools = conversation.tools};
  for (OrderedJson& tool : part.tools) {
    mark_tool(tool, marks);
  }
  size_t unmarked = 0;  // messages before this one are as they were given
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    part.messages.push_back(conversation.messages[i]);
    mark(part.messages.back(), marks);
    const bool asks = ends == Ends::kAsPrompt && i + 1 == conversation.messages.size();
    if (part.messages.back().role != "assistant" && !asks) continue;
    if (!marks.empty()) {
      std::string missing = marks.first_missing(chat.text(part, /*generation_prompt=*/asks));
      if (!missing.empty()) return missing;
    }
    for (; unmarked <= i; ++unmarked) part.messages[unmarked] = conversation.messages[unmarked];
    part.tools = conversation.tools;
    marks.clear();
  }
  return "";
}

}  // namespace

std::string unrendered(const ChatTemplate& chat, const Conversation& conversation) {
  return first_unrendered(chat, conversation, Ends::kWithAnswer);
}

std::string unrendered_in_prompt(const ChatTemplate& chat, const Conversation& conversation) {
  return first_unrendered(chat, conversation, Ends::kAsPrompt);
}

std::string unrendered_reason(const std::string& missing) {
  return "has " + missing + ", which the chat template does not render";
}

}  // namespace dflash::text
