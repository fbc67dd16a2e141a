// A parsed template: statements and expressions. How deep either nests is bounded while parsing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace dflash::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind : uint8_t {
    kConst,      // value
    kName,       // name
    kList,       // children
    kTuple,      // children
    kDict,       // children: key, value, key, value, ...
    kAttribute,  // children[0].text
    kItem,       // children[0][children[1]]
    kSlice,      // children[0][children[1]:children[2]:children[3]], absent ones null
    kCall,       // children[0](arguments)
    kFilter,     // children[0] | text(arguments); children[0] null inside {% filter %}
    kTest,       // children[0] is text(arguments)
    kUnary,      // text children[0]: "not", "-", "+"
    kBinary,     // children[0] text children[1]: + - * / // % **
    kCompare,    // children[0] operators[0] children[1] operators[1] children[2] ...
    kAnd,        // children
    kOr,         // children
    kConcat,     // children joined by ~
    kCondition   // children[0] if children[1] else children[2], which may be null
  };
  Kind kind = Kind::kConst;
  int line = 1;
  int depth = 1;
  int name = -1;  // number of an identifier
  std::string text;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<std::string> operators;
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // f(*star, **star_star)
};

/// Where an assignment goes: one name, an attribute of a namespace, or several of them.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  int name = -1;
  std::string text;  // of the name; for kAttribute the attribute
  std::vector<Target> parts;
};

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

struct Parameter {
  int name = -1;
  std::string text;
  ExprPtr fallback;  // null: none
};

struct Node {
  enum class Kind : uint8_t {
    kText,         // text
    kOutput,       // expr
    kIf,           // branches in order; a null condition is else
    kFor,          // target in expr if filter: body, else: otherwise
    kSet,          // target = expr
    kSetBlock,     // target = body | expr
    kMacro,        // name text(parameters): body
    kCall,         // expr is the call; parameters and body make its caller
    kFilterBlock,  // body | expr
    kWith,         // targets and values, then body
    kGeneration,   // body: what the model writes
    kBreak,
    kContinue
  };
  Kind kind = Kind::kText;
  int line = 1;
  int name = -1;
  std::string text;
  ExprPtr expr, filter;
  Target target;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  std::vector<Parameter> parameters;
  bool takes_varargs = false, takes_kwargs = false,
       takes_caller = false;  // names that the body uses
  Body body, otherwise;
};

/// Identifiers that every template has, with these numbers.
enum SpecialName : uint8_t { kLoopName, kCallerName, kVarargsName, kKwargsName };
inline constexpr std::array<const char*, 4> kSpecialNames = {"loop", "caller", "varargs", "kwargs"};

struct Template {
  Body body;
  std::vector<std::string> names;  // identifiers by number
  bool has_generation_tags = false;
};

}  // namespace dflash::text::jinja
