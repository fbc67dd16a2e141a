// Expressions of a template: jinja2's grammar from inline if down to literals.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/token.h"

namespace dflash::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  enum class Conditions : uint8_t { kAllowed, kNot };

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  void expect(Token::Type type, const char* what);
  std::string expect_name();
  [[noreturn]] void fail_here(const std::string& what) const;
  [[noreturn]] void unexpected(const std::string& expected) const;

  int number_of(const std::string& name);
  ExprPtr parse_expression(Conditions conditions = Conditions::kAllowed);
  /// One expression, or several with commas as a tuple; `end` is a word that ends it.
  ExprPtr parse_tuple(Conditions conditions, std::string_view end = {}, bool parenthesised = false);
  /// `| filter | filter` after `base`, which may be null.
  ExprPtr parse_filters(ExprPtr base, bool first_without_bar);
  /// {% set %} allows attributes of namespaces.
  Target parse_target(bool attributes, std::string_view end = {});

  std::map<std::string, int> numbers_;
  std::vector<std::string> names_;
  std::vector<Node*> open_macros_;  // those around what is being parsed, outermost first

  class Deeper;
  int depth_ = 0;

 private:
  ExprPtr make(Expr::Kind kind, int line) const;
  ExprPtr finish(ExprPtr expr) const;
  ExprPtr binary(std::string op, ExprPtr left, ExprPtr right, int line) const;
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr base);
  ExprPtr parse_attribute(ExprPtr base);
  ExprPtr parse_item(ExprPtr base);
  ExprPtr parse_call(ExprPtr base);
  ExprPtr parse_tests_and_filters(ExprPtr base);
  ExprPtr parse_test(ExprPtr base);
  std::optional<std::string> comparison();
  Target parse_one_target(bool attributes);
  void parse_arguments(Expr& call);
  std::string dotted_name();

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

/// One level of recursion; refuses what is nested too deeply.
class ExpressionParser::Deeper {
 public:
  explicit Deeper(ExpressionParser& parser);
  ~Deeper() { --parser_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  ExpressionParser& parser_;
};

}  // namespace dflash::text::jinja
