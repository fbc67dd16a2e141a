// Filters on single values, and tojson. Parameters and defaults are jinja2's (transformers' for
// tojson).
#include <cmath>
#include <cstdio>
#include <map>

#include "text/jinja/library.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/unicode.h"

namespace dflash::text::jinja {
namespace {

/// soft_str: a str as it is, marked or not; anything else as its text.
Value as_text(const Value& value, Run& run) {
  return value.is_text() ? value : make_text(to_text(value, run), run);
}

Value keep_mark(std::string text, const Value& from, Run& run) {
  run.spend(text.size() + 48);
  return Text{std::make_shared<const std::string>(std::move(text)), from.is_safe()};
}

/// A str that is not marked safe: what filters work on that would have to escape.
std::string plain_text(const Value& value, const char* filter, Run& run) {
  if (value.is_safe()) run.unsupported(fmt::format("'{}' of a string marked safe", filter));
  return to_text(value, run);
}

Value filter_trim(Interpreter& at, const Value& value, const Arguments& arguments) {
  const auto given = bind_arguments("trim", arguments, {"chars"}, 0, at.run());
  const Value text = as_text(value, at.run());
  std::optional<std::string_view> set;
  if (given[0].has_value() && !given[0]->is_none()) {
    if (!given[0]->is_text()) at.run().fail("trim: expected a str");
    set = given[0]->text();
  }
  return keep_mark(std::string(strip(text.text(), set, Ends::kBoth)), text, at.run());
}

template <std::string (*map)(std::string_view)>
Value filter_case(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("case filter", arguments, {}, 0, at.run());
  const Value text = as_text(value, at.run());
  at.run().spend(text.text().size() * 8);
  return keep_mark(map(text.text()), text, at.run());
}

/// The title filter's words begin after white space and - ( { [ <, unlike those of str.title.
std::string filter_title_text(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const std::string_view first = character_at(word, 0);
    out += to_upper(first) + to_lower(std::string_view(word).substr(first.size()));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const std::string_view one = character_at(text, at);
    at += one.size();
    const bool mark = std::string_view("-({[<").find(one[0]) != std::string_view::npos;
    if (mark || is_space(read_code_point(one, 0).value)) {
      flush();
      out += one;
    } else {
      word += one;
    }
  }
  flush();
  return out;
}

Value filter_string(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("string", arguments, {}, 0, at.run());
  return as_text(value, at.run());
}

Value filter_safe(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("safe", arguments, {}, 0, at.run());
  return Text{std::make_shared<const std::string>(to_text(value, at.run())), true};
}

Value filter_escape(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("escape", arguments, {}, 0, at.run());
  if (value.is_safe()) return value;
  std::string text = html_escaped(to_text(value, at.run()));
  at.run().spend(text.size());
  return Text{std::make_shared<const std::string>(std::move(text)), true};
}

Value filter_replace(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("replace", arguments, {"old", "new", "count"}, 2, run);
  const std::string text = to_text(value, run);
  const std::string what = to_text(*given[0], run), with = to_text(*given[1], run);
  int64_t limit = -1;
  if (given[2].has_value() && !given[2]->is_none()) {
    if (!given[2]->is_integer()) run.fail("replace: expected an int as count");
    limit = given[2]->integer();
  }
  run.spend(replaced_size(text, what, with));
  return Value(replace(text, what, with, limit));
}

Value filter_indent(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("indent", arguments, {"width", "first", "blank"}, 0, run);
  if (!value.is_text()) run.fail("indent: expected a str, got {}", type_name(value));
  const std::string text = plain_text(value, "indent", run);
  std::string indent(4, ' ');
  if (given[0].has_value() && given[0]->is_text()) {
    indent = given[0]->text();
  } else if (given[0].has_value()) {
    if (!given[0]->is_integer()) run.fail("indent: expected an int or a str as width");
    const int64_t width = std::max<int64_t>(0, given[0]->integer());
    run.spend(static_cast<size_t>(width));
    indent.assign(static_cast<size_t>(width), ' ');
  }
  const auto flag = [&](size_t i) { return given[i].has_value() && is_true(*given[i]); };
  const std::vector<std::string> lines = split_lines(text + "\n", false);
  std::string out;
  if (flag(1)) out = indent;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool indented = i > 0 && (flag(2) || !lines[i].empty());
    run.spend(lines[i].size() + 1 + (indented ? indent.size() : 0));
    if (i > 0) out += '\n';
    if (indented) out += indent;
    out += lines[i];
  }
  return Value(std::move(out));
}

Value filter_default(Interpreter& at, const Value& value, const Arguments& arguments) {
  const auto given =
      bind_arguments("default", arguments, {"default_value", "boolean"}, 0, at.run());
  const bool by_truth = given[1].has_value() && is_true(*given[1]);
  if (!value.is_undefined() && !(by_truth && !is_true(value))) return value;
  return given[0].value_or(Value(""));
}

Value filter_length(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("length", arguments, {}, 0, at.run());
  return length(value, at.run());
}

Value truncated(double number, const Value& fallback, Run& run) {
  if (std::isnan(number)) return fallback;
  if (!(std::abs(number) < 9.2e18)) run.fail("int: {} is out of range", float_text(number));
  return static_cast<int64_t>(number);
}

Value filter_int(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("int", arguments, {"default", "base"}, 0, run);
  const Value fallback = given[0].value_or(int64_t{0});
  if (const auto* undefined = value.as<Undefined>()) run.fail_text(*undefined->why);
  if (value.is_integer()) return value.integer();
  if (value.as<double>() != nullptr) return truncated(value.number(), fallback, run);
  if (!value.is_text()) return fallback;
  const std::string& text = value.text();
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) run.unsupported("'int' of text beyond ASCII");
  }
  const int64_t base = given[1].has_value() && given[1]->is_integer() ? given[1]->integer() : 10;
  if (base != 0 && (base < 2 || base > 36)) run.fail("int: base {}", base);
  std::optional<int64_t> integer;
  try {
    integer = parse_integer(text, static_cast<int>(base));
  } catch (const Error& error) {
    run.fail_text(error.what());
  }
  if (integer.has_value()) return *integer;
  const auto number = parse_float(text);
  if (number.has_value() && std::isinf(*number)) return fallback;
  return number.has_value() ? truncated(*number, fallback, run) : fallback;
}

Value filter_float(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("float", arguments, {"default"}, 0, run);
  if (const auto* undefined = value.as<Undefined>()) run.fail_text(*undefined->why);
  if (value.is_number()) return value.number();
  if (value.is_text()) {
    if (const auto number = parse_float(value.text())) return *number;
  }
  return given[0].value_or(0.0);
}

Value filter_round(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("round", arguments, {"precision", "method"}, 0, run);
  const Value digits = given[0].value_or(int64_t{0});
  const std::string method = given[1].has_value() ? to_text(*given[1], run) : "common";
  if (!value.is_number() || !digits.is_integer()) {
    run.fail("round: expected numbers, got {}", type_name(value));
  }
  const int64_t precision = digits.integer();
  if (method != "common" && method != "ceil" && method != "floor") {
    run.fail("round: method '{}': expected common, ceil or floor", method);
  }
  if (precision < 0 || precision > 300) run.unsupported("'round' to tens or beyond 300 digits");
  if (method == "common") {
    if (value.is_integer()) return value.integer();
    if (!std::isfinite(value.number())) return value;
    // printf rounds the exact value, ties to even, as Python does.
    return parse_float(fmt::format("{:.{}f}", value.number(), precision)).value_or(0.0);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.number() * scale;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value filter_abs(Interpreter& at, const Value& value, const Arguments& arguments) {
  bind_arguments("abs", arguments, {}, 0, at.run());
  if (const auto* number = value.as<double>()) return std::abs(*number);
  if (!value.is_integer()) at.run().fail("abs of a {}", type_name(value));
  return value.integer() < 0 ? negated(value, at.run()) : Value(value.integer());
}

Value filter_format(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  if (!arguments.named.empty()) run.unsupported("'format' with named arguments");
  std::vector<Value> values = arguments.positional;
  return make_text(
      percent_format(plain_text(value, "format", run), make_tuple(std::move(values), run), run),
      run);
}

Value filter_center(Interpreter& at, const Value& value, const Arguments& arguments) {
  const auto given = bind_arguments("center", arguments, {"width"}, 0, at.run());
  Arguments width;
  width.positional.push_back(given[0].value_or(int64_t{80}));
  return call_text_method(at, as_text(value, at.run()), "center", width);
}

/// json.dumps's own defaults depend on whether it breaks lines.
void read_separators(const Value& pair, JsonStyle& style, Run& run) {
  const std::vector<Value> parts = iterate(pair, run);
  if (parts.size() != 2 || !parts[0].is_text() || !parts[1].is_text()) {
    run.fail("tojson: separators: expected two strings");
  }
  style.item_separator = parts[0].text();
  style.key_separator = parts[1].text();
}

Value filter_tojson(Interpreter& at, const Value& value, const Arguments& arguments) {
  Run& run = at.run();
  const auto given = bind_arguments("tojson", arguments,
                                    {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, run);
  const auto there = [&](size_t i) { return given[i].has_value() && !given[i]->is_none(); };
  JsonStyle style;
  style.ascii = there(0) && is_true(*given[0]);
  style.sort_keys = there(3) && is_true(*given[3]);
  if (there(1)) {
    style.lines = true;
    style.item_separator.assign(1, ',');
    if (given[1]->is_text()) {
      style.indent = given[1]->text();
    } else if (given[1]->is_integer()) {
      const int64_t width = std::max<int64_t>(0, given[1]->integer());
      run.spend(static_cast<size_t>(width));
      style.indent.assign(static_cast<size_t>(width), ' ');
    } else {
      run.fail("tojson: indent: expected an int or a str");
    }
  }
  if (there(2)) read_separators(*given[2], style, run);
  return make_text(to_json(value, style, run), run);
}

}  // namespace

Filter find_filter(std::string_view name) {
  static const std::map<std::string_view, Filter> table = {
      {"abs", filter_abs},
      {"capitalize", filter_case<capitalized>},
      {"center", filter_center},
      {"count", filter_length},
      {"d", filter_default},
      {"default", filter_default},
      {"e", filter_escape},
      {"escape", filter_escape},
      {"float", filter_float},
      {"format", filter_format},
      {"indent", filter_indent},
      {"int", filter_int},
      {"length", filter_length},
      {"lower", filter_case<to_lower>},
      {"replace", filter_replace},
      {"round", filter_round},
      {"safe", filter_safe},
      {"string", filter_string},
      {"title", filter_case<filter_title_text>},
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"upper", filter_case<to_upper>},
  };
  const auto found = table.find(name);
  return found != table.end() ? found->second : find_sequence_filter(name);
}

}  // namespace dflash::text::jinja
