#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/library.h"
#include "text/jinja/operators.h"

namespace dflash::text::jinja {

Interpreter::~Interpreter() {
  for (const auto& scope : scopes_with_macros_) {
    scope->variables.clear();
    scope->parent.reset();
  }
  for (const auto& space : namespaces_) space->attributes.clear();
}

void Interpreter::render(const OrderedJson& variables) {
  scope_ = std::make_shared<Scope>();
  for (size_t i = 0; i < source_.names.size(); ++i) {
    const auto found = variables.find(source_.names[i]);
    if (found == variables.end()) continue;
    scope_->variables.emplace_back(static_cast<int>(i), from_json(*found, run_));
  }
  execute(source_.body);
}

std::shared_ptr<Scope> Interpreter::inner_scope() {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  return scope;
}

const Value* Interpreter::lookup(int name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    run_.step();
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Value Interpreter::evaluate_name(const Expr& expr) {
  if (const Value* value = lookup(expr.name)) return *value;
  if (is_global(expr.text)) {
    return std::make_shared<const Callable>(
        Callable{.kind = Callable::Kind::kGlobal, .name = expr.text});
  }
  return Value::undefined(fmt::format("'{}' is undefined", expr.text));
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(evaluate(*expr));
  return values;
}

Value Interpreter::evaluate_dict(const Expr& expr) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    Value key = evaluate(*expr.children[i]);
    put(std::move(key), evaluate(*expr.children[i + 1]), entries, run_);
  }
  return make_dict(std::move(entries), run_);
}

Value Interpreter::evaluate_slice(const Expr& expr) {
  const Value base = evaluate(*expr.children[0]);
  std::array<Value, 3> bounds;
  for (size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1] != nullptr) bounds[i] = evaluate(*expr.children[i + 1]);
  }
  return slice(base, bounds, run_);
}

Value Interpreter::evaluate_unary(const Expr& expr) {
  const Value value = evaluate(*expr.children[0]);
  if (expr.text == "not") return !is_true(value);
  return expr.text == "-" ? negated(value, run_) : unchanged(value, run_);
}

Value Interpreter::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    if (!compare(expr.operators[i], left, right, run_)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_concat(const Expr& expr) {
  std::string text;
  for (const ExprPtr& child : expr.children) text += to_text(evaluate(*child), run_);
  return make_text(std::move(text), run_);
}

Arguments Interpreter::evaluate_arguments(const Expr& expr) {
  Arguments arguments;
  arguments.positional = evaluate_all(expr.positional);
  for (const auto& [name, child] : expr.named) arguments.named.emplace_back(name, evaluate(*child));
  if (expr.star != nullptr) {
    for (Value& value : iterate(evaluate(*expr.star), run_)) {
      arguments.positional.push_back(std::move(value));
    }
  }
  if (expr.star_star != nullptr) {
    const Value more = evaluate(*expr.star_star);
    const auto* dict = more.object<Dict>();
    if (dict == nullptr) run_.fail("'**' before a {}: expected a mapping", type_name(more));
    for (const auto& [key, value] : dict->entries) {
      if (!key.is_text()) run_.fail("'**' with a key that is no string");
      arguments.named.emplace_back(key.text(), value);
    }
  }
  run_.spend((arguments.positional.size() + arguments.named.size()) * sizeof(Value));
  return arguments;
}

/// The first operand that decides, or the last.
Value Interpreter::evaluate_logic(const Expr& expr) {
  const bool stop = expr.kind == Expr::Kind::kOr;
  for (size_t i = 0; i + 1 < expr.children.size(); ++i) {
    Value value = evaluate(*expr.children[i]);
    if (is_true(value) == stop) return value;
  }
  return evaluate(*expr.children.back());
}

Value Interpreter::evaluate(const Expr& expr) {
  const Nesting nesting(run_);
  run_.step();
  run_.line = expr.line;
  const auto child = [&](size_t i) { return evaluate(*expr.children[i]); };
  switch (expr.kind) {
    case Expr::Kind::kConst:
      return expr.value;
    case Expr::Kind::kName:
      return evaluate_name(expr);
    case Expr::Kind::kList:
      return make_list(evaluate_all(expr.children), run_);
    case Expr::Kind::kTuple:
      return make_tuple(evaluate_all(expr.children), run_);
    case Expr::Kind::kDict:
      return evaluate_dict(expr);
    case Expr::Kind::kAttribute:
      return attribute(child(0), expr.text);
    case Expr::Kind::kItem: {
      const Value base = child(0);
      return item(base, child(1));
    }
    case Expr::Kind::kSlice:
      return evaluate_slice(expr);
    case Expr::Kind::kCall: {
      const Value callee = child(0);
      return call(callee, evaluate_arguments(expr));
    }
    case Expr::Kind::kFilter: {
      const Value value = child(0);
      return filter(expr.text, value, evaluate_arguments(expr));
    }
    case Expr::Kind::kTest: {
      const Value value = child(0);
      return test(expr.text, value, evaluate_arguments(expr));
    }
    case Expr::Kind::kUnary:
      return evaluate_unary(expr);
    case Expr::Kind::kBinary: {
      const Value left = child(0);
      return binary(expr.text, left, child(1), run_);
    }
    case Expr::Kind::kCompare:
      return evaluate_compare(expr);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
      return evaluate_logic(expr);
    case Expr::Kind::kConcat:
      return evaluate_concat(expr);
    case Expr::Kind::kCondition:
      break;
  }
  if (is_true(child(1))) return child(0);
  if (expr.children[2] != nullptr) return child(2);
  return Value::undefined("the inline 'if' was false and has no 'else'");
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  run_.step();
  if (const auto* undefined = callee.as<Undefined>()) run_.fail_text(*undefined->why);
  const auto* callable = callee.object<Callable>();
  if (callable == nullptr) run_.fail("a {} cannot be called", type_name(callee));
  switch (callable->kind) {
    case Callable::Kind::kMacro:
      return call_macro(*callable, arguments);
    case Callable::Kind::kMethod:
      return call_method(*this, callable->self, callable->name, arguments);
    case Callable::Kind::kGlobal:
      break;
  }
  return call_global(*this, callable->name, arguments);
}

Value Interpreter::filter(const std::string& name, const Value& value, const Arguments& arguments) {
  run_.step();
  const Filter function = find_filter(name);
  if (function == nullptr) run_.unsupported(fmt::format("filter '{}'", name));
  return function(*this, value, arguments);
}

bool Interpreter::test(const std::string& name, const Value& value, const Arguments& arguments) {
  run_.step();
  const Test function = find_test(name);
  if (function == nullptr) run_.unsupported(fmt::format("test '{}'", name));
  return function(*this, value, arguments);
}

Value Interpreter::make_namespace(std::vector<std::pair<std::string, Value>> attributes) {
  run_.spend(200 + attributes.size() * 100);
  for (const auto& [name, value] : attributes) check_attribute_name(name, run_);
  auto space = std::make_shared<Namespace>(Namespace{std::move(attributes)});
  namespaces_.push_back(space);
  return space;
}

}  // namespace dflash::text::jinja
