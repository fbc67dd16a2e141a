// What follows a value in an expression: attributes, items, calls, filters, tests; and the targets
// of assignments.
#include "text/jinja/expressions.h"

#include "base/error.h"

namespace dflash::text::jinja {

ExprPtr ExpressionParser::parse_postfix(ExprPtr base) {
  while (true) {
    if (current().is_operator(".")) {
      base = parse_attribute(std::move(base));
    } else if (current().is_operator("[")) {
      base = parse_item(std::move(base));
    } else if (current().is_operator("(")) {
      base = parse_call(std::move(base));
    } else {
      return base;
    }
  }
}

ExprPtr ExpressionParser::parse_attribute(ExprPtr base) {
  ExprPtr expr = make(Expr::Kind::kAttribute, take().line);
  expr->children.push_back(std::move(base));
  const Token token = current();
  if (token.type == Token::Type::kName) {
    expr->text = take().text;
  } else if (token.type == Token::Type::kInteger) {
    expr->kind = Expr::Kind::kItem;
    expr->children.push_back(make(Expr::Kind::kConst, token.line));
    expr->children[1]->value = take().integer;
  } else {
    unexpected("a name or a number after '.'");
  }
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_item(ExprPtr base) {
  ExprPtr expr = make(Expr::Kind::kItem, take().line);
  expr->children.push_back(std::move(base));
  const auto ends = [&] { return current().is_operator("]") || current().is_operator(":"); };
  expr->children.push_back(ends() ? nullptr : parse_expression());
  if (current().is_operator(":")) {
    expr->kind = Expr::Kind::kSlice;
    for (int part = 0; part < 2; ++part) {
      const bool given = skip_operator(":") && !ends();
      expr->children.push_back(given ? parse_expression() : nullptr);
    }
  } else if (expr->children[1] == nullptr) {
    unexpected("an index");
  }
  if (current().is_operator(",")) fail_here("several indices at once are not supported");
  expect_operator("]");
  return finish(std::move(expr));
}

void ExpressionParser::parse_arguments(Expr& call) {
  expect_operator("(");
  bool first = true;
  while (!skip_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (skip_operator(")")) return;
    }
    first = false;
    if (call.star_star != nullptr) fail_here("an argument after '**': expected ')'");
    if (skip_operator("*")) {
      if (call.star != nullptr) fail_here("two arguments with '*': expected one");
      call.star = parse_expression();
    } else if (skip_operator("**")) {
      call.star_star = parse_expression();
    } else if (current().type == Token::Type::kName && next().is_operator("=")) {
      const std::string name = take().text;
      take();
      call.named.emplace_back(name, parse_expression());
    } else {
      if (call.star != nullptr || !call.named.empty()) {
        fail_here("an argument without a name after one with a name: expected it before");
      }
      call.positional.push_back(parse_expression());
    }
  }
}

ExprPtr ExpressionParser::parse_call(ExprPtr base) {
  ExprPtr expr = make(Expr::Kind::kCall, current().line);
  expr->children.push_back(std::move(base));
  parse_arguments(*expr);
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_tests_and_filters(ExprPtr base) {
  while (true) {
    if (current().is_operator("|")) {
      base = parse_filters(std::move(base), false);
    } else if (current().is_name("is")) {
      base = parse_test(std::move(base));
    } else if (current().is_operator("(")) {
      base = parse_call(std::move(base));
    } else {
      return base;
    }
  }
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_name();
  while (skip_operator(".")) name.append(1, '.').append(expect_name());
  return name;
}

ExprPtr ExpressionParser::parse_filters(ExprPtr base, bool first_without_bar) {
  while (first_without_bar || skip_operator("|")) {
    first_without_bar = false;
    ExprPtr expr = make(Expr::Kind::kFilter, current().line);
    expr->text = dotted_name();
    expr->children.push_back(std::move(base));
    if (current().is_operator("(")) parse_arguments(*expr);
    base = finish(std::move(expr));
  }
  return base;
}

ExprPtr ExpressionParser::parse_test(ExprPtr base) {
  const int line = take().line;
  const bool negated = skip_name("not");
  ExprPtr test = make(Expr::Kind::kTest, line);
  test->text = dotted_name();
  test->children.push_back(std::move(base));
  const Token& token = current();
  if (token.is_operator("(")) {
    parse_arguments(*test);
  } else if ((token.type == Token::Type::kName && !token.is_name("else") && !token.is_name("or") &&
              !token.is_name("and")) ||
             token.type == Token::Type::kString || token.type == Token::Type::kInteger ||
             token.type == Token::Type::kFloat || token.is_operator("[") ||
             token.is_operator("{")) {
    if (token.is_name("is")) fail_here("two tests in a row: expected 'and' between them");
    test->positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  if (!negated) return test;
  ExprPtr expr = make(Expr::Kind::kUnary, line);
  expr->text = "not";
  expr->children.push_back(std::move(test));
  return finish(std::move(expr));
}

Target ExpressionParser::parse_one_target(bool attributes) {
  const Deeper deeper(*this);
  Target target;
  if (skip_operator("(")) {
    target = parse_target(attributes);
    expect_operator(")");
    return target;
  }
  if (current().type != Token::Type::kName) unexpected("a name to assign to");
  target.text = take().text;
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (target.text == constant) fail_here(fmt::format("'{}' cannot be assigned to", constant));
  }
  target.name = number_of(target.text);
  if (attributes && skip_operator(".")) {
    target.kind = Target::Kind::kAttribute;
    target.text = expect_name();
  }
  return target;
}

Target ExpressionParser::parse_target(bool attributes, std::string_view end) {
  Target first = parse_one_target(attributes);
  if (!current().is_operator(",")) return first;
  Target all;
  all.kind = Target::Kind::kTuple;
  all.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (current().is_operator(")") || current().type == Token::Type::kBlockEnd ||
        current().is_operator("=") || (!end.empty() && current().is_name(end))) {
      break;
    }
    all.parts.push_back(parse_one_target(attributes));
  }
  return all;
}

}  // namespace dflash::text::jinja
