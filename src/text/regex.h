// A tokenizer file's regular expression (written for Oniguruma, Ruby syntax) run by PCRE2. Escapes
// that mean different things in the two are translated or refused, never guessed.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace dflash::text {

struct Span {
  size_t begin = 0, end = 0;
};

class Regex {
 public:
  /// Error when the pattern does not compile or uses what the engines read differently; `where`
  /// names the file for the message.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Reusable match memory, one a thread of work.
  class Scratch;

  /// First match that begins at or after `from` in valid UTF-8. Error when the match limit is hit
  /// (a hostile pattern).
  std::optional<Span> find(std::string_view text, size_t from, Scratch& scratch) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  std::string pattern_, where_;
  std::unique_ptr<Code> code_;
};

class Regex::Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

/// The PCRE2 spelling of an Oniguruma pattern. Error: see Regex.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace dflash::text
