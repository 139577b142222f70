// The interpreter's expressions.
#include <algorithm>

#include "chat/jinja/access.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

Value Interpreter::lookup(Symbol symbol) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* value = scope->find(symbol)) return *value;
  }
  if (outside_[symbol]) return *outside_[symbol];
  return Value::undefined_name(program_.names[symbol]);
}

// Constants and names are most of what is evaluated, and nest no further.
Value Interpreter::evaluate(const Expr& expression) {
  budget_.step();
  if (expression.kind == ExprKind::kConst) return static_cast<const ConstExpr&>(expression).value;
  if (expression.kind == ExprKind::kName) return lookup(static_cast<const NameExpr&>(expression).symbol);
  const Deeper deeper(*this);
  return evaluate_nested(expression);
}

Value Interpreter::evaluate_nested(const Expr& expression) {
  switch (expression.kind) {
    case ExprKind::kConst:
    case ExprKind::kName:
      break;
    case ExprKind::kTuple:
      return Value::tuple(evaluate_all(static_cast<const SequenceExpr&>(expression).items));
    case ExprKind::kList:
      return Value::list(evaluate_all(static_cast<const SequenceExpr&>(expression).items));
    case ExprKind::kConcat:
      return concatenate(static_cast<const SequenceExpr&>(expression));
    case ExprKind::kDict:
      return make_dict(static_cast<const DictExpr&>(expression));
    case ExprKind::kUnary: {
      const auto& node = static_cast<const UnaryExpr&>(expression);
      return unary(node.op, evaluate(*node.operand));
    }
    case ExprKind::kBinary: {
      const auto& node = static_cast<const BinaryExpr&>(expression);
      const Value left = evaluate(*node.left);
      return binary(node.op, left, evaluate(*node.right), budget_);
    }
    case ExprKind::kCompare:
      return compare_chain(static_cast<const CompareExpr&>(expression));
    case ExprKind::kLogic: {
      const auto& node = static_cast<const LogicExpr&>(expression);
      Value left = evaluate(*node.left);
      return truthy(left) == node.is_and ? evaluate(*node.right) : left;
    }
    case ExprKind::kNot:
      return Value(!truthy(evaluate(*static_cast<const NotExpr&>(expression).operand)));
    case ExprKind::kConditional:
      return conditional(static_cast<const ConditionalExpr&>(expression));
    case ExprKind::kAttribute: {
      const auto& node = static_cast<const AttributeExpr&>(expression);
      return get_attribute(evaluate(*node.object), node.attribute);
    }
    case ExprKind::kItem: {
      const auto& node = static_cast<const ItemExpr&>(expression);
      const Value object = evaluate(*node.object);
      const Value key = evaluate(*node.key);
      const auto text_bytes = [](const Value& value) { return value.is_string() ? value.text().size() : 0; };
      budget_.step((text_bytes(object) + text_bytes(key)) / 64);  // a string is walked to the index, a key is hashed
      return get_item(object, key);
    }
    case ExprKind::kSlice:
      return evaluate_slice(static_cast<const SliceExpr&>(expression));
    case ExprKind::kCall:
      return evaluate_call(static_cast<const CallExpr&>(expression), nullptr);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return evaluate_named(static_cast<const NamedExpr&>(expression));
  }
  return {};
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExprPtr>& expressions) {
  std::vector<Value> out;
  out.reserve(expressions.size());
  for (const auto& expression : expressions) out.push_back(evaluate(*expression));
  budget_.make_items(out.size());
  return out;
}

Value Interpreter::concatenate(const SequenceExpr& node) {
  std::string out;
  for (const auto& item : node.items) {
    const Value value = evaluate(*item);
    budget_.make_text(extent(value).weight);
    append_text(out, value);
    budget_.check_output(out.size());
  }
  return Value(std::move(out));
}

Value Interpreter::make_dict(const DictExpr& node) {
  Dict out;
  budget_.make_items(2 * node.entries.size());
  for (const auto& [key, value] : node.entries) {
    Value name = evaluate(*key);
    out.set(std::move(name), evaluate(*value));
  }
  return Value::dict(std::move(out));
}

Value Interpreter::compare_chain(const CompareExpr& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, expression] : node.rest) {
    Value right = evaluate(*expression);
    if (!compare(op, left, right, budget_)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::conditional(const ConditionalExpr& node) {
  if (truthy(evaluate(*node.condition))) return evaluate(*node.then);
  if (node.otherwise) return evaluate(*node.otherwise);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Value Interpreter::evaluate_slice(const SliceExpr& node) {
  const Value object = evaluate(*node.object);
  const auto bound = [&](const ExprPtr& expression) { return expression ? evaluate(*expression) : Value(); };
  const Value start = bound(node.start), stop = bound(node.stop), step = bound(node.step);
  return slice(object, start, stop, step, budget_);
}

Arguments Interpreter::evaluate(const CallArguments& arguments) {
  Arguments out;
  out.positional.reserve(arguments.positional.size());
  for (const auto& argument : arguments.positional) out.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : arguments.named) out.named.emplace_back(name, evaluate(*argument));
  if (arguments.more_positional) {
    const Items more = iterate(evaluate(*arguments.more_positional), budget_);
    out.positional.insert(out.positional.end(), more.begin(), more.end());
  }
  if (arguments.more_named) {
    const Value more = evaluate(*arguments.more_named);
    if (!more.is(Type::kDict)) {
      fail_type(fmt::format("argument after ** must be a mapping, not {}", type_name(more)));
    }
    for (const Dict::Entry& entry : more.as_dict().entries()) {
      if (!entry.first.is_string()) fail_type("keywords must be strings");
      const std::string& name = entry.first.text();
      const bool is_double =
          std::any_of(out.named.begin(), out.named.end(), [&](const auto& other) { return other.first == name; });
      if (is_double) fail_type(fmt::format("got multiple values for keyword argument '{}'", name));
      out.named.emplace_back(name, entry.second);
    }
  }
  return out;
}

Value Interpreter::evaluate_call(const CallExpr& node, const Value* caller) {
  const Value callee = evaluate(*node.callee);
  Arguments arguments = evaluate(node.arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return call(callee, arguments);
}

Value Interpreter::evaluate_named(const NamedExpr& node) { return apply(node, evaluate(*node.operand)); }

Value Interpreter::apply(const NamedExpr& node, const Value& operand) {
  if (node.native == nullptr) {
    const char* what = node.kind == ExprKind::kFilter ? "filter" : "test";
    throw TemplateError(FailureKind::kRuntime, fmt::format("No {} named '{}' found.", what, node.name));
  }
  return run(*node.native, operand, evaluate(node.arguments));
}

// The filters of a block, outermost last in the tree; the innermost has no operand and takes the block's text.
Value Interpreter::filter_text(const Expr* filter, Value text) {
  if (filter == nullptr) return text;
  const auto& node = static_cast<const NamedExpr&>(*filter);
  return apply(node, filter_text(node.operand.get(), std::move(text)));
}

}  // namespace sluice::jinja
