// Runs a parsed template: statements, expressions, calls. Scoping is jinja2's: `set` inside a loop,
// a macro or a block is local to it, inside `if` it is not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/callable.h"
#include "text/jinja/jinja.h"
#include "text/jinja/loop.h"
#include "text/jinja/run.h"
#include "text/jinja/value.h"

namespace dflash::text::jinja {

struct Scope {
  std::vector<std::pair<int, Value>> variables;
  std::shared_ptr<Scope> parent;
};

class Interpreter {
 public:
  /// `names` and `now_seconds` (Unix time, for strftime_now) hold for one rendering.
  Interpreter(const Template& source, const Limits& limits, int64_t now_seconds)
      : source_(source), run_(limits), now_seconds_(now_seconds) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void render(const OrderedJson& variables);

  std::string take_output() { return std::move(output_); }
  const std::vector<GeneratedSpan>& spans() const { return spans_; }
  /// A {% generation %} block went into a string instead of the output: the spans are incomplete.
  bool lost_spans() const { return lost_spans_; }

  Run& run() { return run_; }
  int64_t now_seconds() const { return now_seconds_; }

  Value call(const Value& callee, const Arguments& arguments);
  Value filter(const std::string& name, const Value& value, const Arguments& arguments);
  bool test(const std::string& name, const Value& value, const Arguments& arguments);
  /// base.name and base[key]: attribute first and item first.
  Value attribute(const Value& base, const std::string& name);
  Value item(const Value& base, const Value& key);
  Value make_namespace(std::vector<std::pair<std::string, Value>> attributes);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // run_statements.cpp
  Flow execute(const Body& body);
  Flow execute(const Node& node);
  Flow execute_if(const Node& node);
  Flow execute_for(const Node& node);
  Flow execute_in_scope(const Body& body, std::shared_ptr<Scope> scope);
  void execute_with(const Node& node);
  void execute_set_block(const Node& node);
  void execute_call_block(const Node& node);
  void execute_generation(const Node& node);
  std::string captured(const Body& body);
  Value filtered(const Expr* filters, Value value);
  void print(const std::string& text);
  void assign(const Target& target, Value value, Scope& scope);
  void define_macro(const Node& node);
  Value make_macro(const Node& node);
  Value call_macro(const Callable& macro, const Arguments& arguments);

  // interpreter.cpp
  Value evaluate(const Expr& expr);
  Value evaluate_name(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_unary(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_logic(const Expr& expr);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& exprs);
  Arguments evaluate_arguments(const Expr& expr);
  const Value* lookup(int name);
  std::shared_ptr<Scope> inner_scope();

  const Template& source_;
  Run run_;
  int64_t now_seconds_;
  std::shared_ptr<Scope> scope_;
  std::string output_;
  std::string* out_ = &output_;
  std::vector<GeneratedSpan> spans_;
  bool lost_spans_ = false;
  // Macros and namespaces can refer to each other in circles: these are emptied at the end.
  std::vector<std::shared_ptr<Scope>> scopes_with_macros_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace dflash::text::jinja
