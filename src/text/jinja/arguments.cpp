// Arguments of calls, by Python's rules.
#include <algorithm>

#include "text/jinja/callable.h"
#include "text/jinja/library.h"

namespace dflash::text::jinja {

std::vector<std::optional<Value>> bind_arguments(const std::string& what,
                                                 const Arguments& arguments,
                                                 std::initializer_list<const char*> names,
                                                 size_t required, Run& run) {
  std::vector<std::optional<Value>> bound(names.size());
  if (arguments.positional.size() > names.size()) {
    run.fail("{}: expected at most {} arguments, got {}", what, names.size(),
             arguments.positional.size());
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto at =
        std::find_if(names.begin(), names.end(), [&](const char* known) { return known == name; });
    if (at == names.end()) run.fail("{}: there is no argument '{}'", what, name);
    auto& slot = bound[static_cast<size_t>(at - names.begin())];
    if (slot.has_value()) run.fail("{}: argument '{}' is given twice", what, name);
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i].has_value()) run.fail("{}: argument '{}' is missing", what, names.begin()[i]);
  }
  return bound;
}

void bind_macro(const Node& macro, const Arguments& arguments, Scope& scope, Run& run) {
  const size_t direct = std::min(arguments.positional.size(), macro.parameters.size());
  for (size_t i = 0; i < direct; ++i) {
    scope.variables.emplace_back(macro.parameters[i].name, arguments.positional[i]);
  }
  std::vector<std::pair<Value, Value>> rest;
  std::optional<Value> caller;
  for (const auto& [name, value] : arguments.named) {
    const auto known = std::find_if(
        macro.parameters.begin() + static_cast<ptrdiff_t>(direct), macro.parameters.end(),
        [&](const Parameter& parameter) { return parameter.text == name; });
    if (known != macro.parameters.end()) {
      scope.variables.emplace_back(known->name, value);
    } else if (name == "caller" && macro.takes_caller) {
      caller = value;
    } else {
      rest.emplace_back(Value(name), value);
    }
  }
  if (!rest.empty() && !macro.takes_kwargs) {
    run.fail("macro '{}': there is no argument '{}'", macro.text, rest[0].first.text());
  }
  if (arguments.positional.size() > direct && !macro.takes_varargs) {
    run.fail("macro '{}': expected at most {} arguments, got {}", macro.text, direct,
             arguments.positional.size());
  }
  if (macro.takes_caller) {
    scope.variables.emplace_back(
        kCallerName, caller.value_or(Value::undefined("the macro was not called by 'call'")));
  }
  if (macro.takes_kwargs) {
    scope.variables.emplace_back(kKwargsName, make_dict(std::move(rest), run));
  }
  if (macro.takes_varargs) {
    std::vector<Value> more(arguments.positional.begin() + static_cast<ptrdiff_t>(direct),
                            arguments.positional.end());
    scope.variables.emplace_back(kVarargsName, make_tuple(std::move(more), run));
  }
}

void check_attribute_name(const std::string& name, Run& run) {
  if (name.starts_with('_')) {
    run.fail("namespace attribute '{}': expected a name without '_' in front", name);
  }
}

}  // namespace dflash::text::jinja
