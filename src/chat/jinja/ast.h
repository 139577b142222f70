// The tree of a parsed template. Plain data: the parser makes it, the checker and the interpreter read it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/jinja/value.h"

namespace sluice::jinja {

// A variable's name as an index into Program::names.
using Symbol = uint32_t;

// How deep expressions and statements may nest; it bounds the parser's and the tree's recursion. jinja2 itself ends
// near 200, where Python stops compiling what it generates.
constexpr int kMaxNesting = 250;

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,
  kUnary,
  kBinary,
  kConcat,
  kCompare,
  kLogic,
  kNot,
  kConditional,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expr {
  Expr(ExprKind k, int l) : kind(k), line(l) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int line;
  int height = 1;  // levels below, itself included
};
using ExprPtr = std::unique_ptr<Expr>;

struct ConstExpr : Expr {
  ConstExpr(int l, Value v) : Expr(ExprKind::kConst, l), value(std::move(v)) {}
  Value value;
};

struct NameExpr : Expr {
  NameExpr(int l, Symbol s) : Expr(ExprKind::kName, l), symbol(s) {}
  Symbol symbol;
};

// A tuple, a list, or the operands of ~.
struct SequenceExpr : Expr {
  using Expr::Expr;
  std::vector<ExprPtr> items;
};

struct DictExpr : Expr {
  explicit DictExpr(int l) : Expr(ExprKind::kDict, l) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};

enum class Operator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower, kNegate, kPlus };

struct UnaryExpr : Expr {
  UnaryExpr(int l, Operator o, ExprPtr e) : Expr(ExprKind::kUnary, l), op(o), operand(std::move(e)) {}
  Operator op;
  ExprPtr operand;
};

struct BinaryExpr : Expr {
  BinaryExpr(int l, Operator o, ExprPtr a, ExprPtr b)
      : Expr(ExprKind::kBinary, l), op(o), left(std::move(a)), right(std::move(b)) {}
  Operator op;
  ExprPtr left, right;
};

enum class Comparison : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

// first op operand op operand ...: holds if every neighbouring pair does.
struct CompareExpr : Expr {
  explicit CompareExpr(int l) : Expr(ExprKind::kCompare, l) {}
  ExprPtr first;
  std::vector<std::pair<Comparison, ExprPtr>> rest;
};

struct LogicExpr : Expr {
  LogicExpr(int l, bool both, ExprPtr a, ExprPtr b)
      : Expr(ExprKind::kLogic, l), is_and(both), left(std::move(a)), right(std::move(b)) {}
  bool is_and;
  ExprPtr left, right;
};

struct NotExpr : Expr {
  NotExpr(int l, ExprPtr e) : Expr(ExprKind::kNot, l), operand(std::move(e)) {}
  ExprPtr operand;
};

struct ConditionalExpr : Expr {
  explicit ConditionalExpr(int l) : Expr(ExprKind::kConditional, l) {}
  ExprPtr condition, then, otherwise;  // otherwise may be null: undefined then
};

struct AttributeExpr : Expr {
  AttributeExpr(int l, ExprPtr o, std::string a)
      : Expr(ExprKind::kAttribute, l), object(std::move(o)), attribute(std::move(a)) {}
  ExprPtr object;
  Value attribute;  // a string
};

struct ItemExpr : Expr {
  ItemExpr(int l, ExprPtr o, ExprPtr k) : Expr(ExprKind::kItem, l), object(std::move(o)), key(std::move(k)) {}
  ExprPtr object, key;
};

struct SliceExpr : Expr {
  explicit SliceExpr(int l) : Expr(ExprKind::kSlice, l) {}
  ExprPtr object, start, stop, step;  // all but object may be null
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more_positional, more_named;  // *x and **x, may be null
};

struct CallExpr : Expr {
  CallExpr(int l, ExprPtr c) : Expr(ExprKind::kCall, l), callee(std::move(c)) {}
  ExprPtr callee;
  CallArguments arguments;
};

// A filter or a test.
struct NamedExpr : Expr {
  using Expr::Expr;
  std::string name;
  const Native* native = nullptr;  // null: no such filter or test
  ExprPtr operand;                 // null in {% filter %} and {% set %} blocks: the block's text
  CallArguments arguments;
};

enum class StmtKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kWith,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kScope,  // generation, autoescape false
  kBreak,
  kContinue,
  kLoader,  // include, import, from, extends
};

struct Stmt {
  Stmt(StmtKind k, int l) : kind(k), line(l) {}
  virtual ~Stmt() = default;
  StmtKind kind;
  int line;
};
using Block = std::vector<std::unique_ptr<Stmt>>;

struct TextStmt : Stmt {
  TextStmt(int l, std::string t) : Stmt(StmtKind::kText, l), text(std::move(t)) {}
  std::string text;
};

struct PrintStmt : Stmt {
  PrintStmt(int l, ExprPtr e) : Stmt(StmtKind::kPrint, l), value(std::move(e)) {}
  ExprPtr value;
};

struct IfStmt : Stmt {
  explicit IfStmt(int l) : Stmt(StmtKind::kIf, l) {}
  struct Branch {
    int line;
    ExprPtr condition;  // null: else
    Block body;
  };
  std::vector<Branch> branches;
};

// What an assignment or a loop assigns to.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple } kind = Kind::kName;
  Symbol symbol = 0;
  std::string attribute;  // of a namespace
  std::vector<Target> parts;
};

struct ForStmt : Stmt {
  explicit ForStmt(int l) : Stmt(StmtKind::kFor, l) {}
  Target target;
  ExprPtr iterable, condition;  // condition may be null
  Block body, otherwise;
  bool has_otherwise = false, recursive = false;
};

struct SetStmt : Stmt {
  explicit SetStmt(int l) : Stmt(StmtKind::kSet, l) {}
  Target target;
  ExprPtr value;
};

struct SetBlockStmt : Stmt {
  explicit SetBlockStmt(int l) : Stmt(StmtKind::kSetBlock, l) {}
  Target target;
  ExprPtr filter;  // may be null
  Block body;
};

struct WithStmt : Stmt {
  explicit WithStmt(int l) : Stmt(StmtKind::kWith, l) {}
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Block body;
};

// A macro, or the body of a call block.
struct MacroStmt : Stmt {
  explicit MacroStmt(int l) : Stmt(StmtKind::kMacro, l) {}
  struct Parameter {
    Symbol symbol;
    std::string name;
    ExprPtr fallback;  // may be null
  };
  std::string name;
  Symbol symbol = 0;
  std::vector<Parameter> parameters;
  Block body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct CallBlockStmt : Stmt {
  explicit CallBlockStmt(int l) : Stmt(StmtKind::kCallBlock, l) {}
  ExprPtr call;  // a CallExpr
  MacroStmt body{0};
};

struct FilterBlockStmt : Stmt {
  explicit FilterBlockStmt(int l) : Stmt(StmtKind::kFilterBlock, l) {}
  ExprPtr filter;
  Block body;
};

struct ScopeStmt : Stmt {
  explicit ScopeStmt(int l) : Stmt(StmtKind::kScope, l) {}
  Block body;
  bool is_function = false;  // generation is a function in jinja2: break can't leave it
};

struct Program {
  Block body;
  std::vector<std::string> names;  // by Symbol
  // Names that the language itself sets; kNoSymbol where the template doesn't use them.
  static constexpr Symbol kNoSymbol = UINT32_MAX;
  Symbol loop = kNoSymbol, caller = kNoSymbol, varargs = kNoSymbol, kwargs = kNoSymbol;
};

}  // namespace sluice::jinja
