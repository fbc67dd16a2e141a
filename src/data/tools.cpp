#include "data/tools.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_strict.h"

namespace dflash::data {
namespace {

/// The value, or what its JSON text says; null for an empty text.
OrderedJson unpacked(const OrderedJson& value) {
  if (!value.is_string()) return value;
  const auto& text = value.get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return nullptr;
  return parse_ordered_json_strictly(text, {.unique_keys = false});
}

/// These keys first, the others in their order; fields without a value are absent.
OrderedJson in_order(const OrderedJson& object, std::initializer_list<std::string_view> first) {
  OrderedJson out = OrderedJson::object();
  for (const std::string_view key : first) {
    const auto found = object.find(key);
    if (found != object.end() && !found->is_null()) out[std::string(key)] = *found;
  }
  for (const auto& [key, value] : object.items()) {
    if (!value.is_null() && !out.contains(key)) out[key] = value;
  }
  return out;
}

/// "function", or what others call a call ("tool_use", "tool_call").
bool is_function_type(const OrderedJson& type) {
  return type == "function" || type == "tool_use" || type == "tool_call" || type == "function_call";
}

/// {"type": "function", "function": {...}} around what may be bare.
OrderedJson wrapped(const OrderedJson& packed, const char* what) {
  OrderedJson entry = unpacked(packed);
  if (!entry.is_object()) fail("{}: expected an object, got {}", what, entry.type_name());
  if (!entry.contains("function")) {
    OrderedJson wrapper = {{"type", "function"}};
    if (is_function_type(entry.value("type", OrderedJson()))) entry.erase("type");
    if (entry.contains("id")) {
      wrapper["id"] = entry["id"];
      entry.erase("id");
    }
    wrapper["function"] = std::move(entry);
    entry = std::move(wrapper);
  }
  if (entry.value("type", OrderedJson()).is_null()) entry["type"] = "function";
  const OrderedJson& function = entry["function"];
  const bool named = function.is_object() && function.contains("name") &&
                     function["name"].is_string() &&
                     !function["name"].get_ref<const std::string&>().empty();
  if (!named) fail("{}: expected a function with a name", what);
  return in_order(entry, {"id", "type", "function"});
}

/// A null that no JSON schema holds. Arrow tables give each object all fields of its column, null
/// where it has none; `default` and `const` alone may be null of their own (unless they are the
/// names of parameters).
bool has_foreign_null(const OrderedJson& value, bool in_properties = false) {
  if (!value.is_structured()) return false;
  for (const auto& [key, part] : value.items()) {
    const bool may_be =
        !value.is_object() || (!in_properties && (key == "default" || key == "const"));
    if (part.is_null() && !may_be) return true;
    if (has_foreign_null(part, value.is_object() && !in_properties && key == "properties")) {
      return true;
    }
  }
  return false;
}

OrderedJson without_null_fields(const OrderedJson& value) {
  if (!value.is_structured()) return value;
  OrderedJson out = value.is_object() ? OrderedJson::object() : OrderedJson::array();
  for (const auto& [key, part] : value.items()) {
    if (value.is_array()) {
      out.push_back(without_null_fields(part));
    } else if (!part.is_null()) {
      out[key] = without_null_fields(part);
    }
  }
  return out;
}

/// The object under one of these names, as itself or as its JSON text; null where none is there.
/// Error: two that say different things.
OrderedJson only_object(const OrderedJson& function, std::initializer_list<const char*> names,
                        const char* what) {
  OrderedJson only;
  for (const char* name : names) {
    const OrderedJson object = unpacked(function.value(name, OrderedJson()));
    if (object.is_null()) continue;
    if (!object.is_object()) {
      fail("{} of a {}: expected an object, got {}", name, what, object.type_name());
    }
    if (!only.is_null() && only != object) fail("{} of a {}: given twice", name, what);
    if (only.is_null()) only = object;
  }
  return only;
}

OrderedJson arguments_of(const OrderedJson& function) {
  OrderedJson only =
      only_object(function, {"arguments", "parameters", "input", "args"}, "tool call");
  return only.is_null() ? OrderedJson::object() : only;
}

/// What a call says must reach the prompt: a key that we do not read is an error.
void expect_keys(const OrderedJson& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    fail("tool call: unknown key '{}'", key);
  }
}

/// What describes the arguments, under any of its names, as `parameters`.
void settle_parameters(OrderedJson& function) {
  const auto names = {"parameters", "input_schema", "inputSchema"};
  const OrderedJson only = only_object(function, names, "tool");
  for (const char* name : names) function.erase(name);
  if (!only.is_null()) function["parameters"] = only;
}

}  // namespace

OrderedJson canonical_tools(const OrderedJson& tools) {
  const OrderedJson list = unpacked(tools);
  if (list.empty()) return nullptr;
  if (!list.is_array()) fail("tools: expected a list, got {}", list.type_name());
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& entry : list) {
    OrderedJson tool = wrapped(entry, "tool");
    settle_parameters(tool["function"]);
    OrderedJson function = in_order(tool["function"], {"name", "description", "parameters"});
    if (has_foreign_null(function)) function = without_null_fields(function);
    tool["function"] = std::move(function);
    out.push_back(std::move(tool));
  }
  return out;
}

OrderedJson canonical_calls(const OrderedJson& calls) {
  OrderedJson list = unpacked(calls);
  if (list.is_object() && !list.empty()) list = OrderedJson::array({list});
  if (list.empty()) return nullptr;
  if (!list.is_array()) fail("tool calls: expected a list, got {}", list.type_name());
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& entry : list) {
    OrderedJson call = wrapped(entry, "tool call");
    const OrderedJson& function = call["function"];
    expect_keys(call, {"id", "type", "function", "index"});
    expect_keys(function, {"name", "arguments", "parameters", "input", "args"});
    call.erase("index");
    call["function"] = {{"name", function["name"]}, {"arguments", arguments_of(function)}};
    out.push_back(std::move(call));
  }
  return out;
}

}  // namespace dflash::data
