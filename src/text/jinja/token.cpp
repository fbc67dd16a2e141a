#include "text/jinja/token.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "text/jinja/literal.h"
#include "text/jinja/python_text.h"
#include "text/unicode.h"

namespace dflash::text::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

/// One line break form; one break at the very end is not part of a template.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (source.substr(i + 1).starts_with('\n')) ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : owned_(normalized(source)), source_(owned_) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    push(Token::Type::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(const std::string& what) const {
    fail("chat template: line {}: {}", line_, what);
  }

  bool starts(std::string_view what, size_t at) const {
    return source_.substr(at).starts_with(what);
  }

  void push(Token::Type type, std::string text) {
    tokens_.push_back({.type = type, .line = line_, .text = std::move(text)});
  }

  /// Goes on at `end`, counting lines.
  void move_to(size_t end) {
    for (; at_ < end; ++at_) line_ += source_[at_] == '\n';
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  size_t skip_space(size_t at) const {
    while (at < source_.size() && is_space(read_code_point(source_, at).value)) {
      at += character_at(source_, at).size();
    }
    return at;
  }

  /// The end of a tag that closes with `close` at `at`: its sign, and the white space it takes.
  /// npos: it does not close here.
  size_t tag_end(size_t at, std::string_view close, bool trims_line) const {
    if (starts("-", at) && starts(close, at + 1)) return skip_space(at + 1 + close.size());
    if (trims_line && starts("+", at) && starts(close, at + 1)) return at + 1 + close.size();
    if (!starts(close, at)) return std::string_view::npos;
    const size_t end = at + close.size();
    return trims_line && starts("\n", end) ? end + 1 : end;
  }

  /// `{%`, an optional sign, `word`: the place after the word; npos: something else is here.
  size_t tag_of_word(size_t at, std::string_view word) const {
    if (!starts("{%", at)) return std::string_view::npos;
    at += 2;
    if (starts("-", at) || starts("+", at)) ++at;
    at = skip_space(at);
    return starts(word, at) ? skip_space(at + word.size()) : std::string_view::npos;
  }

  /// Emits the text before a tag, without what the tag's sign or lstrip_blocks strips.
  void emit_data(size_t end, char sign, bool variable) {
    std::string_view text = source_.substr(at_, end - at_);
    if (sign == '-') {
      text = strip(text, std::nullopt, Ends::kBack);
    } else if (sign != '+' && !variable) {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 = 0
      const bool blank = strip(text.substr(line), std::nullopt, Ends::kFront).empty();
      if ((line > 0 || line_starting_) && blank) text = text.substr(0, line);
    }
    if (!text.empty()) push(Token::Type::kData, std::string(text));
    move_to(end);
  }

  char sign_at(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }

  void data() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        push(Token::Type::kData, std::string(source_.substr(at_)));
        return move_to(source_.size());
      }
      const char kind = source_[tag + 1];
      if (kind == '%' || kind == '{' || kind == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const bool signed_tag = sign == '-' || sign == '+';
    emit_data(tag, sign, kind == '{');
    if (const size_t after = raw_begin(tag); after != std::string_view::npos) return raw(after);
    if (kind == '#') return comment(tag + (signed_tag ? 3 : 2));
    push(kind == '%' ? Token::Type::kBlockBegin : Token::Type::kVariableBegin, "");
    move_to(tag + (signed_tag ? 3 : 2));
    inside(kind == '%');
  }

  size_t raw_begin(size_t tag) const {
    const size_t word = tag_of_word(tag, "raw");
    if (word == std::string_view::npos) return word;
    return tag_end(word, "%}", false);
  }

  void raw(size_t begin) {
    move_to(begin);
    for (size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 1)) {
      const size_t word = tag_of_word(tag, "endraw");
      if (word == std::string_view::npos) continue;
      const size_t end = tag_end(word, "%}", true);
      if (end == std::string_view::npos) continue;
      emit_data(tag, sign_at(tag + 2), false);
      return move_to(end);
    }
    fail_here("'raw' without 'endraw'");
  }

  void comment(size_t begin) {
    const size_t close = source_.find("#}", begin);
    if (close == std::string_view::npos) fail_here("a comment without its end");
    const char sign = close > begin ? source_[close - 1] : '\0';
    move_to(tag_end(sign == '-' || sign == '+' ? close - 1 : close, "#}", true));
  }

  /// Tokens of a block or a variable, up to its end.
  void inside(bool block) {
    std::string open;  // closing brackets that are awaited
    while (at_ < source_.size()) {
      if (open.empty()) {
        const size_t end = tag_end(at_, block ? "%}" : "}}", block);
        if (end != std::string_view::npos) {
          push(block ? Token::Type::kBlockEnd : Token::Type::kVariableEnd, "");
          return move_to(end);
        }
      }
      one(open);
    }
    fail_here("a tag without its end");
  }

  void one(std::string& open) {
    const size_t after_space = skip_space(at_);
    if (after_space != at_) return move_to(after_space);
    const char c = source_[at_];
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    const CodePoint point = read_code_point(source_, at_);
    if (point.valid && is_word(point.value)) return name();
    for (const std::string_view op : kOperators) {
      if (!starts(op, at_)) continue;
      balance(op, open);
      push(Token::Type::kOperator, std::string(op));
      return move_to(at_ + op.size());
    }
    fail_here(fmt::format("unexpected character '{}'", character_at(source_, at_)));
  }

  void balance(std::string_view op, std::string& open) {
    if (op == "{") open += '}';
    if (op == "(") open += ')';
    if (op == "[") open += ']';
    if (op != "}" && op != ")" && op != "]") return;
    if (open.empty()) fail_here(fmt::format("unexpected '{}'", op));
    if (open.back() != op[0]) fail_here(fmt::format("'{}': expected '{}'", op, open.back()));
    open.pop_back();
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() && is_word(read_code_point(source_, end).value)) {
      end += character_at(source_, end).size();
    }
    push(Token::Type::kName, std::string(source_.substr(at_, end - at_)));
    move_to(end);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_here("a string without its end");
    try {
      push(Token::Type::kString, unescaped(source_.substr(at_ + 1, end - at_ - 1)));
    } catch (const Error& e) {
      fail_here(e.what());
    }
    move_to(end + 1);
  }

  /// Digits with single underscores between them; the place after them.
  size_t digits(size_t at) const {
    while (at < source_.size() && is_digit(source_[at])) {
      ++at;
      if (starts("_", at) && at + 1 < source_.size() && is_digit(source_[at + 1])) ++at;
    }
    return at;
  }

  /// The place after a floating-point number that begins here; npos: it is none.
  size_t float_end() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return std::string_view::npos;
    size_t end = digits(at_);
    bool is_float = false;
    if (starts(".", end) && digits(end + 1) > end + 1) {
      end = digits(end + 1);
      is_float = true;
    }
    if (starts("e", end) || starts("E", end)) {
      const size_t power = end + (starts("+", end + 1) || starts("-", end + 1) ? 2 : 1);
      if (digits(power) > power) return digits(power);
    }
    return is_float ? end : std::string_view::npos;
  }

  size_t integer_end(int& base) const {
    base = 10;
    const auto prefix = [&](const char* lower, const char* upper) {
      return starts(lower, at_) || starts(upper, at_);
    };
    if (prefix("0x", "0X")) base = 16;
    if (prefix("0o", "0O")) base = 8;
    if (prefix("0b", "0B")) base = 2;
    const auto fits = [&](size_t at) {
      if (at >= source_.size()) return false;
      const char c = source_[at];
      const int value = is_digit(c) ? c - '0' : ((c | 32) >= 'a' ? (c | 32) - 'a' + 10 : 99);
      return value < base;
    };
    size_t end = at_ + (base == 10 ? 0 : 2);
    if (base != 10 && !fits(starts("_", end) ? end + 1 : end)) {
      base = 10;
      end = at_;
    }
    // A decimal number begins with a zero only when it is zero.
    const bool zero = base == 10 && source_[at_] == '0';
    while (true) {
      const size_t next = starts("_", end) && end > at_ ? end + 1 : end;
      if (!fits(next) || (zero && source_[next] != '0')) return end;
      end = next + 1;
    }
  }

  void number() {
    Token token = {.type = Token::Type::kInteger, .line = line_};
    int base = 10;
    size_t end = float_end();
    const bool is_float = end != std::string_view::npos;
    if (!is_float) end = integer_end(base);
    for (const char c : source_.substr(at_, end - at_)) {
      if (c != '_') token.text += c;
    }
    if (is_float) {
      token.type = Token::Type::kFloat;
      token.number = std::strtod(token.text.c_str(), nullptr);
    } else {
      const char* from = token.text.data() + (base == 10 ? 0 : 2);
      const auto got =
          std::from_chars(from, token.text.data() + token.text.size(), token.integer, base);
      if (got.ec != std::errc())
        fail_here(fmt::format("number '{}': expected 64 bits", token.text));
    }
    tokens_.push_back(std::move(token));
    move_to(end);
  }

  std::string owned_;
  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace dflash::text::jinja
