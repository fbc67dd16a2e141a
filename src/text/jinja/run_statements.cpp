// The statements of a template.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"
#include "text/jinja/operators.h"

namespace dflash::text::jinja {

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const NodePtr& node : body) {
    const Flow flow = execute(*node);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Node& node) {
  const Nesting nesting(run_);
  run_.step();
  run_.line = node.line;
  switch (node.kind) {
    case Node::Kind::kText:
      print(node.text);
      break;
    case Node::Kind::kOutput:
      print(to_text(evaluate(*node.expr), run_));
      break;
    case Node::Kind::kIf:
      return execute_if(node);
    case Node::Kind::kFor:
      return execute_for(node);
    case Node::Kind::kSet:
      assign(node.target, evaluate(*node.expr), *scope_);
      break;
    case Node::Kind::kSetBlock:
      execute_set_block(node);
      break;
    case Node::Kind::kMacro:
      define_macro(node);
      break;
    case Node::Kind::kCall:
      execute_call_block(node);
      break;
    case Node::Kind::kFilterBlock: {
      Value text = make_text(captured(node.body), run_);
      print(to_text(filtered(node.expr.get(), std::move(text)), run_));
      break;
    }
    case Node::Kind::kWith:
      execute_with(node);
      break;
    case Node::Kind::kGeneration:
      execute_generation(node);
      break;
    case Node::Kind::kBreak:
      return Flow::kBreak;
    case Node::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interpreter::print(const std::string& text) {
  run_.spend(text.size());
  *out_ += text;
  if (static_cast<int64_t>(out_->size()) > run_.limits().output_bytes) {
    run_.fail("the text is longer than {} bytes", run_.limits().output_bytes);
  }
}

Interpreter::Flow Interpreter::execute_if(const Node& node) {
  for (const auto& [condition, body] : node.branches) {
    if (condition == nullptr || is_true(evaluate(*condition))) return execute(body);
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_in_scope(const Body& body, std::shared_ptr<Scope> scope) {
  const std::shared_ptr<Scope> outer = std::exchange(scope_, std::move(scope));
  const Flow flow = execute(body);
  scope_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::execute_for(const Node& node) {
  const Value source = evaluate(*node.expr);
  const std::shared_ptr<Scope> outer = scope_;
  Loop::Accepts accepts;
  if (node.filter != nullptr) {
    accepts = [this, &node, outer](const Value& item) {
      const std::shared_ptr<Scope> before = std::exchange(scope_, std::make_shared<Scope>());
      scope_->parent = outer;
      assign(node.target, item, *scope_);
      const bool accepted = is_true(evaluate(*node.filter));
      scope_ = before;
      return accepted;
    };
  }
  const bool sized = source.mutable_object<Iterator>() == nullptr;
  const auto loop = std::make_shared<Loop>(iterate(source, run_), sized, 0, std::move(accepts));
  auto scope = inner_scope();
  while (loop->advance()) {
    run_.step();
    if (scope.use_count() > 1) {
      scope = inner_scope();  // a macro keeps the last one
    } else {
      scope->variables.clear();
    }
    assign(node.target, *loop->current, *scope);
    scope->variables.emplace_back(kLoopName, loop);
    if (execute_in_scope(node.body, scope) == Flow::kBreak) break;
  }
  if (loop->index0 == 0 && !loop->current.has_value()) {
    return execute_in_scope(node.otherwise, inner_scope());
  }
  return Flow::kNext;
}

void Interpreter::assign(const Target& target, Value value, Scope& scope) {
  run_.step();
  if (target.kind == Target::Kind::kName) {
    for (auto& [name, held] : scope.variables) {
      if (name != target.name) continue;
      held = std::move(value);
      return;
    }
    scope.variables.emplace_back(target.name, std::move(value));
    return;
  }
  if (target.kind == Target::Kind::kAttribute) {
    const Value* held = lookup(target.name);
    auto* space = held == nullptr ? nullptr : held->mutable_object<Namespace>();
    if (space == nullptr) run_.fail("'set' of an attribute: expected a namespace");
    check_attribute_name(target.text, run_);
    return put(target.text, std::move(value), space->attributes, run_);
  }
  std::vector<Value> parts = iterate(value, run_);
  if (parts.size() != target.parts.size()) {
    run_.fail("unpacking: expected {} values, got {}", target.parts.size(), parts.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], std::move(parts[i]), scope);
}

void Interpreter::execute_with(const Node& node) {
  auto scope = inner_scope();
  for (const auto& [target, expr] : node.assignments) assign(target, evaluate(*expr), *scope);
  execute_in_scope(node.body, std::move(scope));
}

std::string Interpreter::captured(const Body& body) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  execute_in_scope(body, inner_scope());
  out_ = outer;
  return text;
}

Value Interpreter::filtered(const Expr* filters, Value value) {
  if (filters == nullptr) return value;
  value = filtered(filters->children[0].get(), std::move(value));
  run_.line = filters->line;
  return filter(filters->text, value, evaluate_arguments(*filters));
}

void Interpreter::execute_set_block(const Node& node) {
  Value text = make_text(captured(node.body), run_);
  assign(node.target, filtered(node.expr.get(), std::move(text)), *scope_);
}

void Interpreter::execute_generation(const Node& node) {
  const size_t begin = out_->size();
  execute_in_scope(node.body, inner_scope());
  if (out_ == &output_) {
    spans_.push_back({begin, out_->size()});
  } else {
    lost_spans_ = true;
  }
}

Value Interpreter::make_macro(const Node& node) {
  run_.spend(200);
  scopes_with_macros_.push_back(scope_);
  return std::make_shared<const Callable>(Callable{
      .kind = Callable::Kind::kMacro, .name = node.text, .macro = &node, .closure = scope_});
}

void Interpreter::define_macro(const Node& node) {
  Target target;
  target.name = node.name;
  assign(target, make_macro(node), *scope_);
}

void Interpreter::execute_call_block(const Node& node) {
  const Value callee = evaluate(*node.expr->children[0]);
  Arguments arguments = evaluate_arguments(*node.expr);
  arguments.named.emplace_back("caller", make_macro(node));
  print(to_text(call(callee, arguments), run_));
}

Value Interpreter::call_macro(const Callable& macro, const Arguments& arguments) {
  const Nesting nesting(run_);
  const Node& node = *macro.macro;
  const int line = run_.line;
  auto scope = std::make_shared<Scope>();
  scope->parent = macro.closure;
  run_.spend(200);
  bind_macro(node, arguments, *scope, run_);
  const std::shared_ptr<Scope> outer = std::exchange(scope_, scope);
  for (const Parameter& parameter : node.parameters) {
    const bool given = std::any_of(scope->variables.begin(), scope->variables.end(),
                                   [&](const auto& held) { return held.first == parameter.name; });
    if (given) continue;
    Value value = parameter.fallback != nullptr
                      ? evaluate(*parameter.fallback)
                      : Value::undefined(fmt::format("parameter '{}' of '{}' was not given",
                                                     parameter.text, macro.name));
    scope->variables.emplace_back(parameter.name, std::move(value));
  }
  std::string text;
  std::string* const printed = std::exchange(out_, &text);
  execute(node.body);
  out_ = printed;
  scope_ = outer;
  run_.line = line;
  return make_text(std::move(text), run_);
}

}  // namespace dflash::text::jinja
