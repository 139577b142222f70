// Walks a Program and writes the text. One Interpreter is one render: it owns the scopes, counts steps and bytes, and
// knows the line that is being executed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/budget.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"

namespace sluice::jinja {

// Variables of one for, with, macro or block body. Assignments go to the innermost scope, look-ups through all.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> variables;
  bool captured = false;  // a macro or a recursive loop refers to it: it lives until the render ends

  const Value* find(Symbol symbol) const;
  void set(Symbol symbol, Value value);
};

struct Macro : Object {
  const MacroStmt* node = nullptr;
  Scope* scope = nullptr;  // where it was defined
};

// The variable `loop`.
struct Loop : Object {
  std::vector<Value> items;
  Extent extent;
  size_t index = 0;
  int level = 0;                   // of recursion
  const ForStmt* node = nullptr;   // set when the loop is recursive
  Scope* scope = nullptr;          // around a recursive loop
  std::optional<Value> last_seen;  // by changed()
};

class Interpreter {
 public:
  Interpreter(const Program& program, const Environment& environment, const Value& context);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string render();

  // For the built-in functions.
  Budget& budget() { return budget_; }
  const Environment& environment() const { return environment_; }
  Value call(const Value& callee, const Arguments& arguments);
  Value run(const Native& native, const Value& self, const Arguments& arguments);
  Value make_namespace();

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class LocalScope;
  class Deeper;

  // Statements (interpreter.cpp).
  Flow execute(const Block& block);
  Flow execute(const Stmt& statement);
  Flow execute_if(const IfStmt& node);
  Flow execute_scope(const Block& body);
  Flow execute_with(const WithStmt& node);
  Flow execute_set_block(const SetBlockStmt& node);
  Flow execute_filter_block(const FilterBlockStmt& node);
  void execute_call_block(const CallBlockStmt& node);
  void print(const Value& value);
  Flow execute_for(const ForStmt& node);
  Flow run_loop(const ForStmt& node, const Value& iterable, int level);
  std::vector<Value> loop_over(const ForStmt& node, const Value& iterable);
  void assign(const Target& target, const Value& value);
  Value make_macro(const MacroStmt& node);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  void bind_parameters(const MacroStmt& node, const Arguments& arguments);
  Value call_loop(const Value& loop, const Arguments& arguments);
  void capture_scopes();
  // What `body` writes, as a string.
  template <typename Body>
  Value captured_text(Body&& body);

  // Expressions (evaluator.cpp).
  Value evaluate(const Expr& expression);
  Value evaluate_nested(const Expr& expression);
  Value lookup(Symbol symbol);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& expressions);
  Value concatenate(const SequenceExpr& node);
  Value make_dict(const DictExpr& node);
  Value compare_chain(const CompareExpr& node);
  Value conditional(const ConditionalExpr& node);
  Value evaluate_slice(const SliceExpr& node);
  Value evaluate_call(const CallExpr& node, const Value* caller);
  Value evaluate_named(const NamedExpr& node);
  Value apply(const NamedExpr& node, const Value& operand);
  Value filter_text(const Expr* filter, Value text);
  Arguments evaluate(const CallArguments& arguments);

  const Program& program_;
  const Environment& environment_;
  Budget budget_;
  std::vector<std::optional<Value>> outside_;  // by symbol: what the context or the globals give
  Scope globals_;
  Scope* scope_ = &globals_;
  std::vector<std::unique_ptr<Scope>> retained_;
  std::vector<Value> namespaces_;
  std::string output_;
  std::string* out_ = &output_;
  uint32_t depth_ = 0;
  int line_ = 0;
};

std::optional<Value> loop_attribute(const Value& loop, const std::string& name);
std::optional<Value> macro_attribute(const Value& macro, const std::string& name);

// Counts how deeply the interpreter is nested, for as long as it lives.
class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& interpreter) : interpreter_(interpreter) {
    if (interpreter_.depth_ >= interpreter_.budget_.limits().max_depth) {
      throw TemplateError(FailureKind::kRecursion, "maximum recursion depth exceeded");
    }
    ++interpreter_.depth_;
  }
  ~Deeper() { --interpreter_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Interpreter& interpreter_;
};

}  // namespace sluice::jinja
