// Methods of dict, list, tuple and loop. Those that change their object are refused, as Jinja's
// sandbox for immutable values does.
#include <algorithm>

#include "text/jinja/library.h"
#include "text/jinja/operators.h"

namespace dflash::text::jinja {
namespace {

Value view(const Dict& dict, Flavour flavour, Run& run) {
  std::vector<Value> items;
  items.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    if (flavour == Flavour::kKeys) items.push_back(key);
    if (flavour == Flavour::kValues) items.push_back(value);
    if (flavour == Flavour::kItems) items.push_back(make_tuple({key, value}, run));
  }
  return make_sequence(flavour, std::move(items), run);
}

Value dict_method(Interpreter& at, const Value& self, const std::string& name,
                  const Arguments& arguments) {
  Run& run = at.run();
  const Dict& dict = *self.object<Dict>();
  if (name == "get") {
    const auto given = bind_arguments("dict.get", arguments, {"key", "default"}, 1, run);
    const Value* found = find(dict, *given[0], run);
    return found != nullptr ? *found : given[1].value_or(Value());
  }
  if (name == "items" || name == "keys" || name == "values" || name == "copy") {
    bind_arguments("dict." + name, arguments, {}, 0, run);
    if (name == "copy") return self;
    return view(dict,
                name == "items"  ? Flavour::kItems
                : name == "keys" ? Flavour::kKeys
                                 : Flavour::kValues,
                run);
  }
  if (name == "fromkeys") run.unsupported("method 'fromkeys' of dict");
  run.fail("'{}' would change a dict: values of templates cannot be changed", name);
}

Value sequence_method(Interpreter& at, const Value& self, const std::string& name,
                      const Arguments& arguments) {
  Run& run = at.run();
  const Sequence& sequence = *self.object<Sequence>();
  if (name == "copy") {
    bind_arguments("list.copy", arguments, {}, 0, run);
    return self;
  }
  if (name == "count" || name == "index") {
    const auto given = bind_arguments("list." + name, arguments, {"value"}, 1, run);
    int64_t count = 0;
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (!equal(sequence.items[i], *given[0], run)) continue;
      if (name == "index") return static_cast<int64_t>(i);
      ++count;
    }
    if (name == "index") run.fail("list.index: the value is not in the list");
    return count;
  }
  run.fail("'{}' would change a list: values of templates cannot be changed", name);
}

}  // namespace

Value call_method(Interpreter& at, const Value& self, const std::string& name,
                  const Arguments& arguments) {
  if (self.is_text()) return call_text_method(at, self, name, arguments);
  if (self.object<Dict>() != nullptr) return dict_method(at, self, name, arguments);
  if (self.object<Sequence>() != nullptr) return sequence_method(at, self, name, arguments);
  const auto* loop = self.mutable_object<Loop>();
  DF_ASSERT(loop != nullptr, "method {} of a {}", name, type_name(self));
  const auto& choices = arguments.positional;
  if (choices.empty() || !arguments.named.empty()) at.run().fail("loop.cycle: nothing to cycle");
  return choices[static_cast<size_t>(loop->index0) % choices.size()];
}

}  // namespace dflash::text::jinja
