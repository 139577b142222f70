// What jinja2 notices only when it turns the tree into Python (parser.h, check_program).
#include <string_view>

#include "chat/jinja/ast.h"
#include "chat/jinja/parser.h"

namespace sluice::jinja {
namespace {

// Where a node stands. `soft`: inside an if or an inline if, where unknown filters and tests are left to run time.
struct Place {
  bool soft = false;
  bool in_loop = false;
  Place branch() const { return {true, in_loop}; }
  Place scope() const { return {false, in_loop}; }
  Place loop() const { return {false, true}; }
  Place function() const { return {false, false}; }
};

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program) {}

  void block(const Block& statements, Place place) {
    for (const auto& statement : statements) visit(*statement, place);
  }

 private:
  [[noreturn]] static void fail(int line, std::string message) {
    throw TemplateError(FailureKind::kSyntax, std::move(message), line);
  }

  void visit(const Stmt& statement, Place place) {
    switch (statement.kind) {
      case StmtKind::kText:
      case StmtKind::kLoader:
        return;
      case StmtKind::kPrint:
        return visit(static_cast<const PrintStmt&>(statement).value, place);
      case StmtKind::kIf:
        for (const auto& branch : static_cast<const IfStmt&>(statement).branches) {
          visit(branch.condition, place.branch());
          block(branch.body, place.branch());
        }
        return;
      case StmtKind::kFor: {
        const auto& node = static_cast<const ForStmt&>(statement);
        visit(node.iterable, place);
        visit(node.condition, place.scope());
        block(node.body, place.loop());
        return block(node.otherwise, place.scope());
      }
      case StmtKind::kSet:
        return visit(static_cast<const SetStmt&>(statement).value, place);
      case StmtKind::kSetBlock: {
        const auto& node = static_cast<const SetBlockStmt&>(statement);
        visit(node.filter, place.scope());
        return block(node.body, place.scope());
      }
      case StmtKind::kWith: {
        const auto& node = static_cast<const WithStmt&>(statement);
        for (const auto& assignment : node.assignments) visit(assignment.second, place);
        return block(node.body, place.scope());
      }
      case StmtKind::kMacro:
        return macro(static_cast<const MacroStmt&>(statement));
      case StmtKind::kCallBlock: {
        const auto& node = static_cast<const CallBlockStmt&>(statement);
        visit(node.call, place);
        return macro(node.body);
      }
      case StmtKind::kFilterBlock: {
        const auto& node = static_cast<const FilterBlockStmt&>(statement);
        visit(node.filter, place.scope());
        return block(node.body, place.scope());
      }
      case StmtKind::kScope: {
        const auto& node = static_cast<const ScopeStmt&>(statement);
        return block(node.body, node.is_function ? place.function() : place.scope());
      }
      case StmtKind::kBreak:
        if (!place.in_loop) fail(statement.line, "'break' outside loop");
        return;
      case StmtKind::kContinue:
        if (!place.in_loop) fail(statement.line, "'continue' not properly in loop");
        return;
    }
  }

  void macro(const MacroStmt& node) {
    for (const auto& parameter : node.parameters) visit(parameter.fallback, Place{});
    block(node.body, Place{});
  }

  void visit(const CallArguments& arguments, Place place) {
    for (const auto& argument : arguments.positional) visit(argument, place);
    for (const auto& argument : arguments.named) visit(argument.second, place);
    visit(arguments.more_positional, place);
    visit(arguments.more_named, place);
  }

  void visit(const ExprPtr& pointer, Place place) {
    if (!pointer) return;
    const Expr& expression = *pointer;
    switch (expression.kind) {
      case ExprKind::kConst:
        return;
      case ExprKind::kName:
        return name(static_cast<const NameExpr&>(expression));
      case ExprKind::kTuple:
      case ExprKind::kList:
      case ExprKind::kConcat:
        for (const auto& item : static_cast<const SequenceExpr&>(expression).items) visit(item, place);
        return;
      case ExprKind::kDict:
        for (const auto& [key, value] : static_cast<const DictExpr&>(expression).entries) {
          visit(key, place);
          visit(value, place);
        }
        return;
      case ExprKind::kUnary:
        return visit(static_cast<const UnaryExpr&>(expression).operand, place);
      case ExprKind::kBinary:
        visit(static_cast<const BinaryExpr&>(expression).left, place);
        return visit(static_cast<const BinaryExpr&>(expression).right, place);
      case ExprKind::kCompare:
        visit(static_cast<const CompareExpr&>(expression).first, place);
        for (const auto& operand : static_cast<const CompareExpr&>(expression).rest) visit(operand.second, place);
        return;
      case ExprKind::kLogic:
        return logic(static_cast<const LogicExpr&>(expression), place);
      case ExprKind::kNot:
        return visit(static_cast<const NotExpr&>(expression).operand, place);
      case ExprKind::kConditional: {
        const auto& node = static_cast<const ConditionalExpr&>(expression);
        visit(node.condition, place.branch());
        visit(node.then, place.branch());
        return visit(node.otherwise, place.branch());
      }
      case ExprKind::kAttribute:
        return visit(static_cast<const AttributeExpr&>(expression).object, place);
      case ExprKind::kItem:
        visit(static_cast<const ItemExpr&>(expression).object, place);
        return visit(static_cast<const ItemExpr&>(expression).key, place);
      case ExprKind::kSlice: {
        const auto& node = static_cast<const SliceExpr&>(expression);
        visit(node.object, place);
        visit(node.start, place);
        visit(node.stop, place);
        return visit(node.step, place);
      }
      case ExprKind::kCall:
        visit(static_cast<const CallExpr&>(expression).callee, place);
        return visit(static_cast<const CallExpr&>(expression).arguments, place);
      case ExprKind::kFilter:
      case ExprKind::kTest: {
        const auto& node = static_cast<const NamedExpr&>(expression);
        if (node.native == nullptr && !place.soft) {
          fail(node.line,
               fmt::format("No {} named '{}'.", node.kind == ExprKind::kFilter ? "filter" : "test", node.name));
        }
        visit(node.operand, place);
        return visit(node.arguments, place);
      }
    }
  }

  // A constant on the left may settle the result; jinja2 folds it then and never sees the right side.
  void logic(const LogicExpr& node, Place place) {
    visit(node.left, place);
    if (node.left->kind == ExprKind::kConst) {
      const Value& value = static_cast<const ConstExpr&>(*node.left).value;
      if (value.is(Type::kBool) && value.as_bool() != node.is_and) return;
    }
    visit(node.right, place);
  }

  void name(const NameExpr& node) const {
    if (program_.names[node.symbol] == "self") {
      throw TemplateError(FailureKind::kUnsupported, "template inheritance (self) is not supported", node.line);
    }
  }

  const Program& program_;
};

}  // namespace

void check_program(const Program& program) { Checker(program).block(program.body, Place{}); }

}  // namespace sluice::jinja
