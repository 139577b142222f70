#include "chat/jinja/expression_parser.h"

#include <algorithm>
#include <utility>

#include "chat/jinja/builtins.h"

namespace sluice::jinja {
namespace {

template <typename Node, typename... Args>
std::unique_ptr<Node> make(Args&&... args) {
  return std::make_unique<Node>(std::forward<Args>(args)...);
}

[[noreturn]] void fail_nesting(int line) {
  throw TemplateError(FailureKind::kLimit, fmt::format("the template nests more than {} levels deep", kMaxNesting),
                      line);
}

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens, Program& program)
    : program_(program), tokens_(std::move(tokens)) {
  if (at(TokenKind::kError)) fail(current().text);
}

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (parser_.nesting_ >= kMaxNesting) fail_nesting(parser_.current().line);
  ++parser_.nesting_;
}

void ExpressionParser::fail_at(int line, const std::string& message) {
  throw TemplateError(FailureKind::kSyntax, message, line);
}

void ExpressionParser::fail_unexpected(std::string_view wanted) const {
  if (at(TokenKind::kEnd)) fail(fmt::format("unexpected end of template, expected '{}'.", wanted));
  fail(fmt::format("expected token '{}', got '{}'", wanted, describe(current())));
}

const Token& ExpressionParser::next() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  if (at(TokenKind::kError)) fail(current().text);
  return token;
}

bool ExpressionParser::skip_operator(std::string_view text) {
  if (!at_operator(text)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view text) {
  if (!at_name(text)) return false;
  next();
  return true;
}

const Token& ExpressionParser::expect(TokenKind kind) {
  if (!at(kind)) {
    fail_unexpected(kind == TokenKind::kName ? "name" : describe({kind, 0, {}}));
  }
  return next();
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_unexpected(text);
}

void ExpressionParser::expect_name(std::string_view text) {
  if (!skip_name(text)) fail_unexpected(text);
}

Symbol ExpressionParser::intern(const std::string& name) {
  const auto [it, is_new] = symbols_.try_emplace(name, static_cast<Symbol>(program_.names.size()));
  if (is_new) {
    program_.names.push_back(name);
    if (name == "loop") program_.loop = it->second;
    if (name == "caller") program_.caller = it->second;
    if (name == "varargs") program_.varargs = it->second;
    if (name == "kwargs") program_.kwargs = it->second;
  }
  return it->second;
}

void ExpressionParser::raise_height(Expr& node, const Expr* child) const {
  if (child == nullptr) return;
  node.height = std::max(node.height, child->height + 1);
  if (node.height > kMaxNesting) fail_nesting(node.line);
}

void ExpressionParser::raise_height(Expr& node, const CallArguments& arguments) const {
  for (const auto& argument : arguments.positional) raise_height(node, argument.get());
  for (const auto& argument : arguments.named) raise_height(node, argument.second.get());
  raise_height(node, arguments.more_positional.get());
  raise_height(node, arguments.more_named.get());
}

template <typename Node, typename... Children>
ExprPtr ExpressionParser::finish(std::unique_ptr<Node> node, const Children&... children) {
  (raise_height(*node, children.get()), ...);
  return node;
}

// Lines of operators are those that jinja2 reports: where the left operand began, or in a chain where the parser stood
// behind the operand before.
ExprPtr ExpressionParser::expression() {
  int line = current().line;
  ExprPtr left = or_expression();
  while (skip_name("if")) {
    auto node = make<ConditionalExpr>(line);
    node->then = std::move(left);
    node->condition = or_expression();
    if (skip_name("else")) {
      const Nested nested(*this);
      node->otherwise = expression();
    }
    ConditionalExpr& filled = *node;
    left = finish(std::move(node), filled.then, filled.condition, filled.otherwise);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::or_expression() {
  int line = current().line;
  ExprPtr left = and_expression();
  while (skip_name("or")) {
    auto node = make<LogicExpr>(line, false, std::move(left), and_expression());
    LogicExpr& filled = *node;
    left = finish(std::move(node), filled.left, filled.right);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::and_expression() {
  int line = current().line;
  ExprPtr left = not_expression();
  while (skip_name("and")) {
    auto node = make<LogicExpr>(line, true, std::move(left), not_expression());
    LogicExpr& filled = *node;
    left = finish(std::move(node), filled.left, filled.right);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::not_expression() {
  if (!at_name("not")) return comparison();
  const Nested nested(*this);
  const int line = next().line;
  auto node = make<NotExpr>(line, not_expression());
  NotExpr& filled = *node;
  return finish(std::move(node), filled.operand);
}

ExprPtr ExpressionParser::comparison() {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},        {"!=", Comparison::kNotEqual}, {"<=", Comparison::kLessEqual},
      {">=", Comparison::kGreaterEqual}, {"<", Comparison::kLess},      {">", Comparison::kGreater}};
  const int line = current().line;
  ExprPtr first = sum();
  std::vector<std::pair<Comparison, ExprPtr>> rest;
  while (true) {
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& entry) { return at_operator(entry.first); });
    if (op != std::end(kOperators)) {
      next();
      rest.emplace_back(op->second, sum());
    } else if (skip_name("in")) {
      rest.emplace_back(Comparison::kIn, sum());
    } else if (at_name("not") && look_ahead().kind == TokenKind::kName && look_ahead().text == "in") {
      next();
      next();
      rest.emplace_back(Comparison::kNotIn, sum());
    } else {
      break;
    }
  }
  if (rest.empty()) return first;
  auto node = make<CompareExpr>(line);
  raise_height(*node, first.get());
  for (const auto& operand : rest) raise_height(*node, operand.second.get());
  node->first = std::move(first);
  node->rest = std::move(rest);
  return node;
}

ExprPtr ExpressionParser::sum() {
  int line = current().line;
  ExprPtr left = concatenation();
  while (at_operator("+") || at_operator("-")) {
    const Operator op = next().text == "+" ? Operator::kAdd : Operator::kSubtract;
    auto node = make<BinaryExpr>(line, op, std::move(left), concatenation());
    BinaryExpr& filled = *node;
    left = finish(std::move(node), filled.left, filled.right);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  const int line = current().line;
  ExprPtr first = product();
  if (!at_operator("~")) return first;
  auto node = make<SequenceExpr>(ExprKind::kConcat, line);
  raise_height(*node, first.get());
  node->items.push_back(std::move(first));
  while (skip_operator("~")) {
    node->items.push_back(product());
    raise_height(*node, node->items.back().get());
  }
  return node;
}

ExprPtr ExpressionParser::product() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"*", Operator::kMultiply}, {"/", Operator::kDivide}, {"//", Operator::kFloorDivide}, {"%", Operator::kModulo}};
  int line = current().line;
  ExprPtr left = power();
  while (true) {
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& entry) { return at_operator(entry.first); });
    if (op == std::end(kOperators)) return left;
    next();
    auto node = make<BinaryExpr>(line, op->second, std::move(left), power());
    BinaryExpr& filled = *node;
    left = finish(std::move(node), filled.left, filled.right);
    line = current().line;
  }
}

ExprPtr ExpressionParser::power() {
  int line = current().line;
  ExprPtr left = unary(true);
  while (skip_operator("**")) {
    auto node = make<BinaryExpr>(line, Operator::kPower, std::move(left), unary(true));
    BinaryExpr& filled = *node;
    left = finish(std::move(node), filled.left, filled.right);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  const Nested nested(*this);
  ExprPtr node;
  if (at_operator("-") || at_operator("+")) {
    const Token& token = next();
    const Operator op = token.text == "-" ? Operator::kNegate : Operator::kPlus;
    auto negated = make<UnaryExpr>(token.line, op, unary(false));
    UnaryExpr& filled = *negated;
    node = finish(std::move(negated), filled.operand);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filter_chain(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::kName:
      return name_or_constant();
    case TokenKind::kString: {
      const int line = token.line;
      std::string text;
      while (at(TokenKind::kString)) text += next().text;
      return make<ConstExpr>(line, Value(std::move(text)));
    }
    case TokenKind::kInteger:
      next();
      return make<ConstExpr>(token.line, Value(token.integer));
    case TokenKind::kFloat:
      next();
      return make<ConstExpr>(token.line, Value(token.number));
    default:
      break;
  }
  if (skip_operator("(")) {
    ExprPtr inner = tuple(true, {}, true);
    expect_operator(")");
    return inner;
  }
  if (at_operator("[")) return list();
  if (at_operator("{")) return dict();
  fail(fmt::format("unexpected '{}'", describe(token)));
}

ExprPtr ExpressionParser::name_or_constant() {
  const Token& token = next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return make<ConstExpr>(token.line, Value(true));
  if (name == "false" || name == "False") return make<ConstExpr>(token.line, Value(false));
  if (name == "none" || name == "None") return make<ConstExpr>(token.line, Value());
  used_.caller |= name == "caller";
  used_.varargs |= name == "varargs";
  used_.kwargs |= name == "kwargs";
  return make<NameExpr>(token.line, intern(name));
}

ExprPtr ExpressionParser::list() {
  auto node = make<SequenceExpr>(ExprKind::kList, next().line);
  while (!at_operator("]")) {
    if (!node->items.empty()) expect_operator(",");
    if (at_operator("]")) break;
    node->items.push_back(expression());
    raise_height(*node, node->items.back().get());
  }
  expect_operator("]");
  return node;
}

ExprPtr ExpressionParser::dict() {
  auto node = make<DictExpr>(next().line);
  while (!at_operator("}")) {
    if (!node->entries.empty()) expect_operator(",");
    if (at_operator("}")) break;
    ExprPtr key = expression();
    expect_operator(":");
    ExprPtr value = expression();
    raise_height(*node, key.get());
    raise_height(*node, value.get());
    node->entries.emplace_back(std::move(key), std::move(value));
  }
  expect_operator("}");
  return node;
}

bool ExpressionParser::at_tuple_end(std::string_view stop_name) const {
  return at(TokenKind::kPrintEnd) || at(TokenKind::kBlockEnd) || at_operator(")") ||
         (!stop_name.empty() && at_name(stop_name));
}

ExprPtr ExpressionParser::tuple(bool with_conditional, std::string_view stop_name, bool explicit_parentheses) {
  int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_operator(",");
    if (at_tuple_end(stop_name)) break;
    items.push_back(with_conditional ? expression() : or_expression());
    if (!at_operator(",")) break;
    is_tuple = true;
    line = current().line;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!explicit_parentheses) fail(fmt::format("Expected an expression, got '{}'", describe(current())));
  }
  auto node = make<SequenceExpr>(ExprKind::kTuple, line);
  for (const auto& item : items) raise_height(*node, item.get());
  node->items = std::move(items);
  return node;
}

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  while (true) {
    if (at_operator(".") || at_operator("[")) {
      node = subscript(std::move(node));
    } else if (at_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::filter_chain(ExprPtr node) {
  while (true) {
    if (at_operator("|")) {
      node = filters(std::move(node), false);
    } else if (at_name("is")) {
      node = test(std::move(node));
    } else if (at_operator("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr node) {
  const Token& token = next();
  if (token.text == "[") return bracket_subscript(std::move(node), token.line);
  const Token& attribute = current();
  next();
  if (attribute.kind == TokenKind::kName) {
    auto out = make<AttributeExpr>(token.line, std::move(node), attribute.text);
    AttributeExpr& filled = *out;
    return finish(std::move(out), filled.object);
  }
  if (attribute.kind != TokenKind::kInteger) fail_at(attribute.line, "expected name or number");
  auto out = make<ItemExpr>(token.line, std::move(node), make<ConstExpr>(attribute.line, Value(attribute.integer)));
  ItemExpr& filled = *out;
  return finish(std::move(out), filled.object);
}

// Behind "[": an index, a slice, or several of them with commas, which are a tuple.
ExprPtr ExpressionParser::bracket_subscript(ExprPtr node, int line) {
  auto keys = make<SequenceExpr>(ExprKind::kTuple, line);
  ExprPtr parts[3];
  bool is_slice = false;
  while (!at_operator("]")) {
    if (!keys->items.empty() || is_slice) expect_operator(",");
    if (is_slice) throw TemplateError(FailureKind::kUnsupported, "slices inside tuples are not supported", line);
    if (!at_operator(":")) {
      ExprPtr first = expression();
      if (!at_operator(":")) {
        raise_height(*keys, first.get());
        keys->items.push_back(std::move(first));
        continue;
      }
      parts[0] = std::move(first);
    }
    if (!keys->items.empty()) {
      throw TemplateError(FailureKind::kUnsupported, "slices inside tuples are not supported", line);
    }
    is_slice = true;
    for (int part = 1; part < 3 && skip_operator(":"); ++part) {
      if (!at_operator(":") && !at_operator("]") && !at_operator(",")) parts[part] = expression();
    }
  }
  expect_operator("]");
  if (is_slice) {
    auto out = make<SliceExpr>(line);
    out->object = std::move(node);
    out->start = std::move(parts[0]);
    out->stop = std::move(parts[1]);
    out->step = std::move(parts[2]);
    SliceExpr& filled = *out;
    return finish(std::move(out), filled.object, filled.start, filled.stop, filled.step);
  }
  ExprPtr key = keys->items.size() == 1 ? std::move(keys->items[0]) : std::move(keys);
  auto out = make<ItemExpr>(line, std::move(node), std::move(key));
  ItemExpr& filled = *out;
  return finish(std::move(out), filled.object, filled.key);
}

ExprPtr ExpressionParser::call(ExprPtr callee) {
  auto node = make<CallExpr>(current().line, std::move(callee));
  node->arguments = call_arguments();
  raise_height(*node, node->arguments);
  CallExpr& filled = *node;
  return finish(std::move(node), filled.callee);
}

CallArguments ExpressionParser::call_arguments() {
  const int line = current().line;
  expect_operator("(");
  CallArguments out;
  const auto ensure = [&](bool condition) {
    if (!condition) fail_at(line, "invalid syntax for function call expression");
  };
  bool first = true;
  while (!at_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (at_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      ensure(!out.more_positional && !out.more_named);
      out.more_positional = expression();
    } else if (skip_operator("**")) {
      ensure(!out.more_named);
      out.more_named = expression();
    } else if (at(TokenKind::kName) && look_ahead().kind == TokenKind::kOperator && look_ahead().text == "=") {
      ensure(!out.more_named);
      const std::string name = next().text;
      next();
      ensure(std::none_of(out.named.begin(), out.named.end(), [&](const auto& other) { return other.first == name; }));
      out.named.emplace_back(name, expression());
    } else {
      ensure(!out.more_positional && !out.more_named && out.named.empty());
      out.positional.push_back(expression());
    }
  }
  expect_operator(")");
  return out;
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect(TokenKind::kName).text;
  while (skip_operator(".")) name += "." + expect(TokenKind::kName).text;
  return name;
}

ExprPtr ExpressionParser::filters(ExprPtr operand, bool inline_start) {
  while (at_operator("|") || inline_start) {
    if (!inline_start) next();
    inline_start = false;
    auto node = make<NamedExpr>(ExprKind::kFilter, current().line);
    node->name = dotted_name();
    node->native = find_filter(node->name);
    if (at_operator("(")) node->arguments = call_arguments();
    raise_height(*node, node->arguments);
    raise_height(*node, operand.get());
    node->operand = std::move(operand);
    operand = std::move(node);
  }
  return operand;
}

ExprPtr ExpressionParser::test(ExprPtr operand) {
  const int line = next().line;
  const bool negated = skip_name("not");
  auto node = make<NamedExpr>(ExprKind::kTest, line);
  node->name = dotted_name();
  node->native = find_test(node->name);
  const bool at_value = at(TokenKind::kName) || at(TokenKind::kString) || at(TokenKind::kInteger) ||
                        at(TokenKind::kFloat) || at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    node->arguments = call_arguments();
  } else if (at_value && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) fail("You cannot chain multiple tests with is");
    node->arguments.positional.push_back(postfix(primary()));
  }
  raise_height(*node, node->arguments);
  raise_height(*node, operand.get());
  node->operand = std::move(operand);
  if (!negated) return node;
  auto inverted = make<NotExpr>(line, std::move(node));
  NotExpr& filled = *inverted;
  return finish(std::move(inverted), filled.operand);
}

}  // namespace sluice::jinja
