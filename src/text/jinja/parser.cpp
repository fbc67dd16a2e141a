#include "text/jinja/parser.h"

#include <initializer_list>

#include "base/error.h"
#include "text/jinja/expressions.h"

namespace dflash::text::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Template run() {
    for (const char* name : kSpecialNames) number_of(name);
    Template out;
    out.body = parse_until({});
    out.names = std::move(names_);
    out.has_generation_tags = has_generation_tags_;
    return out;
  }

 private:
  using Type = Token::Type;

  static NodePtr make(Node::Kind kind, int line) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->line = line;
    return node;
  }

  /// Statements up to a tag that is one of `ends`; that tag's name is then the current token.
  Body parse_until(std::initializer_list<const char*> ends) {
    Body body;
    while (current().type != Type::kEnd) {
      const Token token = take();
      if (token.type == Type::kData) {
        body.push_back(make(Node::Kind::kText, token.line));
        body.back()->text = token.text;
      } else if (token.type == Type::kVariableBegin) {
        body.push_back(make(Node::Kind::kOutput, token.line));
        body.back()->expr = parse_tuple(Conditions::kAllowed);
        expect(Type::kVariableEnd, "'}}'");
      } else {
        for (const char* end : ends) {
          if (current().is_name(end)) return body;
        }
        body.push_back(parse_statement());
        expect(Type::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() > 0) unexpected(fmt::format("'{}'", *(ends.end() - 1)));
    return body;
  }

  /// The rest of an opening tag and its body; the tag that ends it is taken and returned.
  std::string parse_block(std::initializer_list<const char*> ends, Body& body) {
    skip_operator(":");
    expect(Type::kBlockEnd, "'%}'");
    body = parse_until(ends);
    return take().text;
  }

  NodePtr parse_statement() {
    const Deeper deeper(*this);
    const Token tag = current();
    if (tag.type != Type::kName) unexpected("the name of a tag");
    take();
    if (tag.text == "if") return parse_if(tag.line);
    if (tag.text == "for") return parse_for(tag.line);
    if (tag.text == "set") return parse_set(tag.line);
    if (tag.text == "macro") return parse_macro(tag.line);
    if (tag.text == "call") return parse_call_block(tag.line);
    if (tag.text == "filter") return parse_filter_block(tag.line);
    if (tag.text == "with") return parse_with(tag.line);
    if (tag.text == "generation") return parse_generation(tag.line);
    if (tag.text == "break") return parse_jump(Node::Kind::kBreak, tag);
    if (tag.text == "continue") return parse_jump(Node::Kind::kContinue, tag);
    fail(
        "chat template: line {}: tag '{}' is not supported\n"
        "  hint: known are if, for, set, macro, call, filter, with, generation, break, continue",
        tag.line, tag.text);
  }

  NodePtr parse_if(int line) {
    NodePtr node = make(Node::Kind::kIf, line);
    while (true) {
      ExprPtr condition = parse_tuple(Conditions::kNot);
      Body body;
      const std::string end = parse_block({"elif", "else", "endif"}, body);
      node->branches.emplace_back(std::move(condition), std::move(body));
      if (end == "endif") return node;
      if (end == "elif") continue;
      Body otherwise;
      parse_block({"endif"}, otherwise);
      node->branches.emplace_back(nullptr, std::move(otherwise));
      return node;
    }
  }

  NodePtr parse_for(int line) {
    NodePtr node = make(Node::Kind::kFor, line);
    node->target = parse_target(false, "in");
    if (!skip_name("in")) unexpected("'in'");
    node->expr = parse_tuple(Conditions::kNot, "recursive");
    if (skip_name("if")) node->filter = parse_expression();
    if (current().is_name("recursive")) fail_here("a 'recursive' loop is not supported");
    ++loops_;
    const std::string end = parse_block({"else", "endfor"}, node->body);
    --loops_;
    if (end == "else") parse_block({"endfor"}, node->otherwise);
    return node;
  }

  /// A body that is a function of its own: no loop around it can be left from inside.
  void parse_apart(const char* end, Body& body) {
    const int loops = std::exchange(loops_, 0);
    parse_block({end}, body);
    loops_ = loops;
  }

  NodePtr parse_set(int line) {
    NodePtr node = make(Node::Kind::kSet, line);
    node->target = parse_target(true);
    if (skip_operator("=")) {
      node->expr = parse_tuple(Conditions::kAllowed);
      return node;
    }
    node->kind = Node::Kind::kSetBlock;
    node->expr = parse_filters(nullptr, false);
    parse_apart("endset", node->body);
    return node;
  }

  void parse_parameters(Node& node) {
    expect_operator("(");
    while (!skip_operator(")")) {
      if (!node.parameters.empty()) expect_operator(",");
      Parameter parameter;
      parameter.text = expect_name();
      if (parameter.text == "caller") fail_here("a parameter 'caller' is not supported");
      parameter.name = number_of(parameter.text);
      if (skip_operator("=")) {
        parameter.fallback = parse_expression();
      } else if (!node.parameters.empty() && node.parameters.back().fallback != nullptr) {
        fail_here("a parameter without a default after one with a default");
      }
      node.parameters.push_back(std::move(parameter));
    }
  }

  void parse_macro_body(Node& node, const char* end) {
    open_macros_.push_back(&node);
    parse_apart(end, node.body);
    open_macros_.pop_back();
    for (const Parameter& parameter : node.parameters) {
      if (parameter.text == "varargs") node.takes_varargs = false;
      if (parameter.text == "kwargs") node.takes_kwargs = false;
    }
  }

  NodePtr parse_macro(int line) {
    NodePtr node = make(Node::Kind::kMacro, line);
    node->text = expect_name();
    node->name = number_of(node->text);
    parse_parameters(*node);
    parse_macro_body(*node, "endmacro");
    return node;
  }

  NodePtr parse_call_block(int line) {
    NodePtr node = make(Node::Kind::kCall, line);
    node->text = "caller";
    if (current().is_operator("(")) parse_parameters(*node);
    node->expr = parse_expression();
    if (node->expr->kind != Expr::Kind::kCall) fail_here("'call': expected a call");
    parse_macro_body(*node, "endcall");
    return node;
  }

  NodePtr parse_filter_block(int line) {
    NodePtr node = make(Node::Kind::kFilterBlock, line);
    node->expr = parse_filters(nullptr, true);
    parse_apart("endfilter", node->body);
    return node;
  }

  NodePtr parse_with(int line) {
    NodePtr node = make(Node::Kind::kWith, line);
    while (current().type != Type::kBlockEnd) {
      if (!node->assignments.empty()) expect_operator(",");
      Target target = parse_target(false);
      expect_operator("=");
      node->assignments.emplace_back(std::move(target), parse_expression());
    }
    parse_block({"endwith"}, node->body);
    return node;
  }

  NodePtr parse_generation(int line) {
    NodePtr node = make(Node::Kind::kGeneration, line);
    parse_apart("endgeneration", node->body);
    has_generation_tags_ = true;
    return node;
  }

  NodePtr parse_jump(Node::Kind kind, const Token& tag) {
    if (loops_ == 0) fail_here(fmt::format("'{}' outside a loop", tag.text));
    return make(kind, tag.line);
  }

  int loops_ = 0;
  bool has_generation_tags_ = false;
};

}  // namespace

Template parse(std::string_view source) {
  return Parser(tokenize(source)).run();
}

}  // namespace dflash::text::jinja
