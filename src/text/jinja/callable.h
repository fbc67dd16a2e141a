// What a template can call, and the arguments of a call.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace dflash::text::jinja {

struct Node;
struct Scope;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Arguments by parameter: those of `names` in order; absent ones are empty. Error: too many, an
/// unknown name, one given twice, fewer than `required`.
std::vector<std::optional<Value>> bind_arguments(const std::string& what,
                                                 const Arguments& arguments,
                                                 std::initializer_list<const char*> names,
                                                 size_t required, Run& run);

struct Callable {
  enum class Kind : uint8_t { kMacro, kMethod, kGlobal };
  Kind kind = Kind::kGlobal;
  std::string name;
  Value self = {};                           // kMethod: what it belongs to
  const Node* macro = nullptr;               // kMacro: {% macro %} or the body of {% call %}
  std::shared_ptr<Scope> closure = nullptr;  // kMacro: where it was defined
};

}  // namespace dflash::text::jinja
