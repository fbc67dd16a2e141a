// A template's text -> tokens, by Jinja's rules with trim_blocks and lstrip_blocks on, as chat
// templates are written for. Agrees with jinja2's lexer (see tests/golden/make_jinja.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dflash::text::jinja {

struct Token {
  enum class Type : uint8_t {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Type type = Type::kEnd;
  int line = 1;
  std::string text = {};  // data, name, unescaped string or operator
  int64_t integer = 0;
  double number = 0;

  bool is_operator(std::string_view what) const { return type == Type::kOperator && text == what; }
  bool is_name(std::string_view what) const { return type == Type::kName && text == what; }
};

/// Ends with one kEnd. Error: what jinja2 calls a syntax error, with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace dflash::text::jinja
