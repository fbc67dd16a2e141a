// What templates find by name: filters, tests, methods and global functions. One table each; what
// is not in it is refused by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/interpreter.h"

namespace dflash::text::jinja {

using Filter = Value (*)(Interpreter&, const Value&, const Arguments&);
using Test = bool (*)(Interpreter&, const Value&, const Arguments&);

/// nullptr: there is none of that name.
Filter find_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
Test find_test(std::string_view name);

/// Whether values of this type have the attribute in Python, as a method.
bool has_method(const Value& value, std::string_view name);
Value call_method(Interpreter& at, const Value& self, const std::string& name,
                  const Arguments& arguments);
Value call_text_method(Interpreter& at, const Value& self, const std::string& name,
                       const Arguments& arguments);

bool is_global(std::string_view name);
Value call_global(Interpreter& at, const std::string& name, const Arguments& arguments);

/// json.dumps as transformers calls it.
struct JsonStyle {
  bool ascii = false, sort_keys = false;
  std::string item_separator = ", ", key_separator = ": ";
  bool lines = false;  // one item a line, indented by `indent` a level
  std::string indent;
};
std::string to_json(const Value& value, const JsonStyle& style, Run& run);

/// str.format without format specifications, and printf-style `format % values`.
std::string braces_format(Interpreter& at, const std::string& format, const Arguments& arguments);
std::string percent_format(const std::string& format, const Value& values, Run& run);

/// strftime in UTC for the directives that chat templates use.
std::string format_time(const std::string& format, int64_t seconds, Run& run);

/// Parameters of a macro that `arguments` give, `varargs`, `kwargs` and `caller` where it uses
/// them.
void bind_macro(const Node& macro, const Arguments& arguments, Scope& scope, Run& run);

/// Attributes of namespaces may not begin with '_'.
void check_attribute_name(const std::string& name, Run& run);

}  // namespace dflash::text::jinja
