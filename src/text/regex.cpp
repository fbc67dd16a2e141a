#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cctype>

#include "base/error.h"

namespace dflash::text {
namespace {

constexpr uint32_t kMatchLimit = 50'000'000;  // backtracking steps before a pattern is called bad
constexpr uint32_t kHeapLimitKib = 256 * 1024;

// PCRE2's \s also holds U+180E, which is not White_Space since Unicode 6.3.
constexpr std::string_view kSpaceSet =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpaceSet = R"(\S\x{180E})";

/// Walks a pattern once and writes the PCRE2 spelling.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail("tokenizer pattern: {}: {} is read differently by Oniguruma and PCRE2: '{}'", where_, what,
         pattern_);
  }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\') return escape();
    if (in_class_) return class_character(c);
    if (c == '[') {
      in_class_ = true;
      class_begin_ = at_ + (pattern_.substr(at_ + 1).starts_with('^') ? 2 : 1);
      out_ += pattern_.substr(at_, class_begin_ - at_);
      at_ = class_begin_;
      return;
    }
    if (c == '}' && pattern_.substr(at_ + 1).starts_with('+')) refuse("'{n,m}+'");
    out_ += c;
    ++at_;
  }

  void class_character(char c) {
    if (c == ']' && at_ != class_begin_) in_class_ = false;
    if (c == '[') refuse("'[' inside a set");
    if (pattern_.substr(at_).starts_with("&&")) refuse("'&&' inside a set");
    out_ += c;
    ++at_;
  }

  void escape() {
    if (at_ + 1 >= pattern_.size()) refuse("a backslash at the end");
    const char kind = pattern_[at_ + 1];
    switch (kind) {
      case 's':
        out_ += in_class_ ? std::string(kSpaceSet) : fmt::format("[^{}]", kNotSpaceSet);
        break;
      case 'S':
        out_ += in_class_ ? std::string(kNotSpaceSet) : fmt::format("[{}]", kNotSpaceSet);
        break;
      case 'p':
      case 'P':
        return property(kind);
      case 'u':
        return code_unit();
      case 'd':
      case 'D':
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'x':
        out_ += {'\\', kind};
        break;
      default:
        if (std::isalnum(static_cast<unsigned char>(kind))) refuse(fmt::format("'\\{}'", kind));
        out_ += {'\\', kind};
    }
    at_ += 2;
  }

  /// General categories have one or two letters; longer names are scripts, for which PCRE2 would
  /// take the wider "script extensions" unless told.
  void property(char kind) {
    const size_t end = pattern_.find('}', at_);
    if (pattern_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos) {
      refuse("a property without braces");
    }
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    out_ +=
        fmt::format("\\{}{{{}{}{}}}", kind, negated ? "^" : "", name.size() > 2 ? "sc:" : "", name);
    at_ = end + 1;
  }

  void code_unit() {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    if (digits.size() != 4) refuse("'\\u' without four digits");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  std::string_view pattern_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0, class_begin_ = 0;
  bool in_class_ = false;
};

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* made) : code(made) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
};

struct Regex::Scratch::State {
  State()
      : data(pcre2_match_data_create(4, nullptr)), context(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
  }
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  pcre2_match_data* data;
  pcre2_match_context* context;
};

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

Regex::Scratch::Scratch() : state_(std::make_unique<State>()) {}
Regex::Scratch::~Scratch() = default;

Regex::Regex(const std::string& pattern, const std::string& where)
    : pattern_(pattern), where_(where) {
  const std::string translated = to_pcre2(pattern, where);
  int code = 0;
  PCRE2_SIZE offset = 0;
  // Ruby syntax: '^' and '$' work on lines.
  pcre2_code* made =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &offset, nullptr);
  if (made == nullptr) {
    fail("tokenizer pattern: {}: {} at place {} of '{}'", where, error_text(code), offset,
         translated);
  }
  code_ = std::make_unique<Code>(made);
  pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);  // without a JIT the interpreter does the same
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

std::optional<Span> Regex::find(std::string_view text, size_t from, Scratch& scratch) const {
  const auto run = [&](uint32_t options) {
    return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       options, scratch.state_->data, scratch.state_->context);
  };
  int result = run(PCRE2_NO_UTF_CHECK);
  // The JIT's stack is small; the interpreter takes its memory from the heap.
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    fail("tokenizer pattern: {}: {} while matching '{}'", where_, error_text(result), pattern_);
  }
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch.state_->data);
  return Span{found[0], found[1]};
}

}  // namespace dflash::text
