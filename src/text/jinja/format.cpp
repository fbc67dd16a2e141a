// str.format for plain fields, and the printf-style operator for %s, %d, %i, %f, %x, %r.
#include <charconv>
#include <cmath>

#include "text/jinja/library.h"
#include "text/jinja/python_text.h"

namespace dflash::text::jinja {
namespace {

/// Fields are numbered by the file or by their order, never both.
class FieldNumbers {
 public:
  size_t of(std::string_view digits, Run& run) {
    if (digits.empty()) {
      if (explicit_) run.fail("str.format: fields with and without a number");
      automatic_ = true;
      return next_++;
    }
    if (automatic_) run.fail("str.format: fields with and without a number");
    explicit_ = true;
    size_t number = 0;
    const auto got = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (got.ec != std::errc()) run.fail("str.format: field '{}'", digits);
    return number;
  }

 private:
  size_t next_ = 0;
  bool automatic_ = false, explicit_ = false;
};

Value named_argument(const Arguments& arguments, std::string_view name, Run& run) {
  for (const auto& [known, value] : arguments.named) {
    if (known == name) return value;
  }
  run.fail("str.format: there is no argument '{}'", name);
}

/// The value of `{field}`: a number or a name, then .attribute and [item] parts.
Value field_value(Interpreter& at, std::string_view field, const Arguments& arguments,
                  FieldNumbers& numbers) {
  Run& run = at.run();
  if (field.find_first_of(":!") != std::string_view::npos) {
    run.unsupported(fmt::format("str.format: field '{{{}}}'", field));
  }
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view head = field.substr(0, end);
  Value value;
  if (head.find_first_not_of("0123456789") == std::string_view::npos) {
    const size_t number = numbers.of(head, run);
    if (number >= arguments.positional.size()) run.fail("str.format: no argument {}", number);
    value = arguments.positional[number];
  } else {
    value = named_argument(arguments, head, run);
  }
  if (end != field.size()) run.unsupported(fmt::format("str.format: field '{{{}}}'", field));
  return value;
}

/// One conversion of a printf-style format.
struct Conversion {
  bool left = false, zeros = false, plus = false;
  size_t width = 0;
  int precision = -1;
  char kind = 's';
};

Conversion parse_conversion(const std::string& format, size_t& at, Run& run) {
  Conversion conversion;
  const auto more = [&] { return at < format.size(); };
  for (; more(); ++at) {
    if (format[at] == '-') {
      conversion.left = true;
    } else if (format[at] == '0') {
      conversion.zeros = true;
    } else if (format[at] == '+') {
      conversion.plus = true;
    } else {
      break;
    }
  }
  const auto number = [&] {
    size_t value = 0;
    for (; more() && std::isdigit(static_cast<unsigned char>(format[at])) != 0; ++at) {
      value = std::min<size_t>(value * 10 + static_cast<size_t>(format[at] - '0'), 100'000);
    }
    return value;
  };
  conversion.width = number();
  if (more() && format[at] == '.') {
    ++at;
    conversion.precision = static_cast<int>(number());
  }
  if (!more()) run.fail("'%': the format ends inside a field");
  conversion.kind = format[at++];
  return conversion;
}

std::string number_text(const Conversion& conversion, const Value& value, Run& run) {
  if (!value.is_number()) {
    run.fail("'%{}': expected a number, got {}", conversion.kind, type_name(value));
  }
  if (conversion.kind == 'f') {
    const int digits = conversion.precision < 0 ? 6 : std::min(conversion.precision, 300);
    return fmt::format("{:.{}f}", value.number(), digits);
  }
  if (conversion.precision >= 0) run.unsupported("'%' with a precision of integers");
  if (conversion.kind == 'x') {
    if (!value.is_integer()) run.fail("'%x': expected an int, got {}", type_name(value));
    return fmt::format("{:x}", value.integer());
  }
  const double number = value.number();
  if (!std::isfinite(number) || std::abs(number) >= 9e18) run.fail("'%d': out of range");
  return std::to_string(value.is_integer() ? value.integer() : static_cast<int64_t>(number));
}

std::string converted(const Conversion& conversion, const Value& value, Run& run) {
  std::string text;
  const bool is_text = conversion.kind == 's' || conversion.kind == 'r';
  if (is_text) {
    text = conversion.kind == 'r' ? repr(value, run) : to_text(value, run);
    if (conversion.precision >= 0) run.unsupported("'%s' with a precision");
  } else if (std::string_view("dixf").find(conversion.kind) != std::string_view::npos) {
    text = number_text(conversion, value, run);
    if (conversion.plus && !text.starts_with('-')) text.insert(text.begin(), '+');
  } else {
    run.unsupported(fmt::format("'%' with '%{}'", conversion.kind));
  }
  const auto size = static_cast<size_t>(count_characters(text));
  if (size >= conversion.width) return text;
  run.spend(conversion.width);
  const size_t missing = conversion.width - size;
  if (conversion.left) return text + std::string(missing, ' ');
  if (!conversion.zeros || is_text) return std::string(missing, ' ') + text;
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return text.insert(sign, std::string(missing, '0'));
}

}  // namespace

std::string braces_format(Interpreter& at, const std::string& format, const Arguments& arguments) {
  Run& run = at.run();
  std::string out;
  FieldNumbers numbers;
  for (size_t i = 0; i < format.size();) {
    const char c = format[i];
    const bool doubled = i + 1 < format.size() && format[i + 1] == c;
    if ((c == '{' || c == '}') && doubled) {
      out += c;
      i += 2;
    } else if (c == '}') {
      run.fail("str.format: a single '}}'");
    } else if (c == '{') {
      const size_t end = format.find('}', i);
      if (end == std::string::npos) run.fail("str.format: expected '}}' before the end");
      const std::string_view field(format.data() + i + 1, end - i - 1);
      out += to_text(field_value(at, field, arguments, numbers), run);
      i = end + 1;
    } else {
      out += c;
      ++i;
    }
  }
  return out;
}

std::string percent_format(const std::string& format, const Value& values, Run& run) {
  const auto* tuple = values.object<Sequence>();
  const bool many = tuple != nullptr && tuple->flavour == Flavour::kTuple;
  const size_t count = many ? tuple->items.size() : 1;
  std::string out;
  size_t used = 0;
  for (size_t i = 0; i < format.size();) {
    if (format[i] != '%') {
      out += format[i++];
      continue;
    }
    ++i;
    if (i < format.size() && format[i] == '(') run.unsupported("'%' with a named field");
    const Conversion conversion = parse_conversion(format, i, run);
    if (conversion.kind == '%') {
      out += '%';
      continue;
    }
    if (used >= count) run.fail("'%': expected more values than {}", count);
    out += converted(conversion, many ? tuple->items[used] : values, run);
    ++used;
  }
  const bool mapping = values.object<Dict>() != nullptr;
  if (used < count && !mapping) run.fail("'%': expected {} values, got {}", used, count);
  run.spend(out.size());
  return out;
}

}  // namespace dflash::text::jinja
