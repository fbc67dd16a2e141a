#include "text/jinja/expressions.h"

#include <algorithm>

#include "base/error.h"

namespace dflash::text::jinja {
namespace {

constexpr int kMaxNesting = 120;    // brackets, tags and calls inside each other
constexpr int kMaxTreeDepth = 400;  // operators and filters in one chain count too

std::string shown(const Token& token) {
  switch (token.type) {
    case Token::Type::kEnd:
      return "the end of the template";
    case Token::Type::kVariableEnd:
      return "'}}'";
    case Token::Type::kBlockEnd:
      return "'%}'";
    case Token::Type::kString:
      return "a string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace

ExpressionParser::Deeper::Deeper(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ <= kMaxNesting) return;
  --parser_.depth_;
  parser_.fail_here(fmt::format("nested more than {} levels deep", kMaxNesting));
}

void ExpressionParser::fail_here(const std::string& what) const {
  fail("chat template: line {}: {}", current().line, what);
}

void ExpressionParser::unexpected(const std::string& expected) const {
  fail_here(fmt::format("expected {}, got {}", expected, shown(current())));
}

bool ExpressionParser::skip_operator(std::string_view text) {
  if (!current().is_operator(text)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view text) {
  if (!current().is_name(text)) return false;
  take();
  return true;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) unexpected(fmt::format("'{}'", text));
}

void ExpressionParser::expect(Token::Type type, const char* what) {
  if (current().type != type) unexpected(what);
  take();
}

std::string ExpressionParser::expect_name() {
  if (current().type != Token::Type::kName) unexpected("a name");
  return take().text;
}

int ExpressionParser::number_of(const std::string& name) {
  const auto [at, added] = numbers_.emplace(name, static_cast<int>(names_.size()));
  if (added) names_.push_back(name);
  return at->second;
}

ExprPtr ExpressionParser::make(Expr::Kind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr ExpressionParser::finish(ExprPtr expr) const {
  int depth = 0;
  const auto count = [&](const ExprPtr& child) {
    if (child != nullptr) depth = std::max(depth, child->depth);
  };
  for (const ExprPtr& child : expr->children) count(child);
  for (const ExprPtr& child : expr->positional) count(child);
  for (const auto& [name, child] : expr->named) count(child);
  count(expr->star);
  count(expr->star_star);
  expr->depth = depth + 1;
  if (expr->depth > kMaxTreeDepth) {
    fail_here(fmt::format("an expression more than {} levels deep", kMaxTreeDepth));
  }
  return expr;
}

ExprPtr ExpressionParser::binary(std::string op, ExprPtr left, ExprPtr right, int line) const {
  ExprPtr expr = make(Expr::Kind::kBinary, line);
  expr->text = std::move(op);
  expr->children.push_back(std::move(left));
  expr->children.push_back(std::move(right));
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_expression(Conditions conditions) {
  const Deeper deeper(*this);
  ExprPtr value = parse_or();
  while (conditions == Conditions::kAllowed && skip_name("if")) {
    ExprPtr expr = make(Expr::Kind::kCondition, current().line);
    expr->children.push_back(std::move(value));
    expr->children.push_back(parse_or());
    expr->children.push_back(skip_name("else") ? parse_expression() : nullptr);
    value = finish(std::move(expr));
  }
  return value;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  if (!current().is_name("or")) return left;
  ExprPtr expr = make(Expr::Kind::kOr, current().line);
  expr->children.push_back(std::move(left));
  while (skip_name("or")) expr->children.push_back(parse_and());
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  if (!current().is_name("and")) return left;
  ExprPtr expr = make(Expr::Kind::kAnd, current().line);
  expr->children.push_back(std::move(left));
  while (skip_name("and")) expr->children.push_back(parse_not());
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Deeper deeper(*this);
  ExprPtr expr = make(Expr::Kind::kUnary, take().line);
  expr->text = "not";
  expr->children.push_back(parse_not());
  return finish(std::move(expr));
}

std::optional<std::string> ExpressionParser::comparison() {
  for (const char* op : {"==", "!=", "<", "<=", ">", ">="}) {
    if (skip_operator(op)) return op;
  }
  if (skip_name("in")) return "in";
  if (current().is_name("not") && next().is_name("in")) {
    take();
    take();
    return "not in";
  }
  return std::nullopt;
}

ExprPtr ExpressionParser::parse_compare() {
  const int line = current().line;
  ExprPtr left = parse_sum();
  auto op = comparison();
  if (!op.has_value()) return left;
  ExprPtr expr = make(Expr::Kind::kCompare, line);
  expr->children.push_back(std::move(left));
  for (; op.has_value(); op = comparison()) {
    expr->operators.push_back(std::move(*op));
    expr->children.push_back(parse_sum());
  }
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (current().is_operator("+") || current().is_operator("-")) {
    const Token op = take();
    left = binary(op.text, std::move(left), parse_concat(), op.line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr left = parse_product();
  if (!current().is_operator("~")) return left;
  ExprPtr expr = make(Expr::Kind::kConcat, current().line);
  expr->children.push_back(std::move(left));
  while (skip_operator("~")) expr->children.push_back(parse_product());
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  while (current().is_operator("*") || current().is_operator("/") || current().is_operator("//") ||
         current().is_operator("%")) {
    const Token op = take();
    left = binary(op.text, std::move(left), parse_power(), op.line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (current().is_operator("**")) {
    const Token op = take();
    left = binary(op.text, std::move(left), parse_unary(true), op.line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const Deeper deeper(*this);
  ExprPtr value;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Token op = take();
    value = make(Expr::Kind::kUnary, op.line);
    value->text = op.text;
    value->children.push_back(parse_unary(false));
    value = finish(std::move(value));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_tests_and_filters(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::parse_primary() {
  const Token token = current();
  ExprPtr expr = make(Expr::Kind::kConst, token.line);
  switch (token.type) {
    case Token::Type::kName:
      return parse_name();
    case Token::Type::kString: {
      std::string text;
      while (current().type == Token::Type::kString) text += take().text;
      expr->value = Value(std::move(text));
      return expr;
    }
    case Token::Type::kInteger:
      expr->value = take().integer;
      return expr;
    case Token::Type::kFloat:
      expr->value = take().number;
      return expr;
    default:
      break;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  if (!skip_operator("(")) unexpected("an expression");
  expr = parse_tuple(Conditions::kAllowed, {}, true);
  expect_operator(")");
  return expr;
}

ExprPtr ExpressionParser::parse_name() {
  const Token token = take();
  ExprPtr expr = make(Expr::Kind::kConst, token.line);
  if (token.text == "true" || token.text == "True") {
    expr->value = true;
  } else if (token.text == "false" || token.text == "False") {
    expr->value = false;
  } else if (token.text != "none" && token.text != "None") {
    expr->kind = Expr::Kind::kName;
    expr->name = number_of(token.text);
    expr->text = token.text;
    for (Node* macro : open_macros_) {
      macro->takes_varargs = macro->takes_varargs || token.text == "varargs";
      macro->takes_kwargs = macro->takes_kwargs || token.text == "kwargs";
      macro->takes_caller = macro->takes_caller || token.text == "caller";
    }
  }
  return expr;
}

ExprPtr ExpressionParser::parse_tuple(Conditions conditions, std::string_view end,
                                      bool parenthesised) {
  ExprPtr tuple = make(Expr::Kind::kTuple, current().line);
  bool is_tuple = false;
  while (true) {
    const Token& token = current();
    if (token.type == Token::Type::kVariableEnd || token.type == Token::Type::kBlockEnd ||
        token.is_operator(")") || (!end.empty() && token.is_name(end))) {
      break;
    }
    tuple->children.push_back(parse_expression(conditions));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple->children.empty()) return std::move(tuple->children[0]);
  if (!is_tuple && !parenthesised) unexpected("an expression");
  return finish(std::move(tuple));
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr list = make(Expr::Kind::kList, take().line);
  while (!skip_operator("]")) {
    if (!list->children.empty()) expect_operator(",");
    if (skip_operator("]")) break;
    list->children.push_back(parse_expression());
  }
  return finish(std::move(list));
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr dict = make(Expr::Kind::kDict, take().line);
  while (!skip_operator("}")) {
    if (!dict->children.empty()) expect_operator(",");
    if (skip_operator("}")) break;
    dict->children.push_back(parse_expression());
    expect_operator(":");
    dict->children.push_back(parse_expression());
  }
  return finish(std::move(dict));
}

}  // namespace dflash::text::jinja
