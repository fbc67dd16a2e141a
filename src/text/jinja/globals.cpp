// The global functions of chat templates: those of Jinja and those that transformers adds.
#include <algorithm>
#include <array>
#include <ctime>

#include "text/jinja/library.h"
#include "text/jinja/operators.h"

namespace dflash::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // Jinja's sandbox

Value make_range(Interpreter& at, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("range", arguments, {"start", "stop", "step"}, 1, run);
  std::array<int64_t, 3> bounds = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!given[i].has_value()) continue;
    if (!given[i]->is_integer()) {
      run.fail("range: expected integers, got {}", type_name(*given[i]));
    }
    bounds[i] = given[i]->integer();
  }
  if (!given[1].has_value()) bounds = {0, bounds[0], 1};
  const auto [start, stop, step] = bounds;
  if (step == 0) run.fail("range: step of zero");
  std::vector<Value> items;
  for (int64_t value = start; step > 0 ? value < stop : value > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      run.fail("range: expected at most {} elements", kMaxRange);
    }
    items.push_back(value);
    if (__builtin_add_overflow(value, step, &value)) break;
  }
  return make_sequence(Flavour::kRange, std::move(items), run);
}

/// Entries of dict(...) and namespace(...): a mapping or pairs first, then the named ones.
std::vector<std::pair<Value, Value>> entries_of(Interpreter& at, const std::string& what,
                                                const Arguments& arguments) {
  Run& run = at.run();
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) run.fail("{}: expected at most one argument", what);
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const auto* dict = source.object<Dict>()) {
      entries = dict->entries;
    } else {
      for (const Value& pair : iterate(source, run)) {
        std::vector<Value> parts = iterate(pair, run);
        if (parts.size() != 2) run.fail("{}: expected pairs", what);
        put(std::move(parts[0]), std::move(parts[1]), entries, run);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) put(Value(name), value, entries, run);
  return entries;
}

Value call_namespace(Interpreter& at, const Arguments& arguments) {
  std::vector<std::pair<std::string, Value>> attributes;
  for (auto& [key, value] : entries_of(at, "namespace", arguments)) {
    if (!key.is_text()) at.run().fail("namespace: expected names as keys");
    attributes.emplace_back(key.text(), std::move(value));
  }
  return at.make_namespace(std::move(attributes));
}

Value call_raise(Interpreter& at, const Arguments& arguments) {
  const auto given = bind_arguments("raise_exception", arguments, {"message"}, 1, at.run());
  at.run().fail("the template refuses the conversation: {}", to_text(*given[0], at.run()));
}

Value call_strftime(Interpreter& at, const Arguments& arguments) {
  const auto given = bind_arguments("strftime_now", arguments, {"format"}, 1, at.run());
  if (!given[0]->is_text()) at.run().fail("strftime_now: expected a str");
  return make_text(format_time(given[0]->text(), at.now_seconds(), at.run()), at.run());
}

}  // namespace

bool is_global(std::string_view name) {
  static constexpr std::array<std::string_view, 8> names = {
      "range",        "namespace", "dict",   "raise_exception",
      "strftime_now", "cycler",    "joiner", "lipsum"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value call_global(Interpreter& at, const std::string& name, const Arguments& arguments) {
  if (name == "range") return make_range(at, arguments);
  if (name == "namespace") return call_namespace(at, arguments);
  if (name == "dict") return make_dict(entries_of(at, "dict", arguments), at.run());
  if (name == "raise_exception") return call_raise(at, arguments);
  if (name == "strftime_now") return call_strftime(at, arguments);
  at.run().unsupported(fmt::format("function '{}'", name));
}

std::string format_time(const std::string& format, int64_t seconds, Run& run) {
  static constexpr std::string_view known = "aAbBdHIjmMpSUwWxXyYZz%cDeFGTu";
  for (size_t i = 0; i + 1 < format.size(); ++i) {
    if (format[i] != '%') continue;
    if (known.find(format[++i]) == std::string_view::npos) {
      run.unsupported(fmt::format("strftime_now: '%{}'", format[i]));
    }
  }
  if (format.empty()) return {};
  if (format.size() > 1000) run.fail("strftime_now: the format is longer than 1000 bytes");
  const std::time_t time = seconds;
  std::tm parts{};
  localtime_r(&time, &parts);
  std::string text(format.size() * 40 + 1, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
  return text;
}

}  // namespace dflash::text::jinja
