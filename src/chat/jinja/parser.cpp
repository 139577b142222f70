#include "chat/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/utf8.h"
#include "chat/jinja/expression_parser.h"

namespace sluice::jinja {
namespace {

using EndTags = std::initializer_list<std::string_view>;

class Parser : ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, Program& program) : ExpressionParser(std::move(tokens), program) {}

  void run() { program_.body = statements({}); }

 private:
  // Text, prints and tags until a tag named in `ends`, which is left as the current token; without ends, all.
  Block statements(EndTags ends) {
    const Nested nested(*this);
    Block out;
    while (!at(TokenKind::kEnd)) {
      if (at(TokenKind::kText)) {
        const Token& text = next();
        out.push_back(std::make_unique<TextStmt>(text.line, text.text));
      } else if (at(TokenKind::kPrintBegin)) {
        next();
        const int line = current().line;
        out.push_back(std::make_unique<PrintStmt>(line, tuple(true)));
        out.back()->line = static_cast<PrintStmt&>(*out.back()).value->line;  // as jinja2 reports it
        expect(TokenKind::kPrintEnd);
      } else {
        expect(TokenKind::kBlockBegin);
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return at_name(end); })) return out;
        statement(out, ends);
        expect(TokenKind::kBlockEnd);
      }
    }
    if (ends.size() != 0) fail(fmt::format("Unexpected end of template, looking for '{}'", *ends.begin()));
    return out;
  }

  // The body of a tag: behind its block end, up to one of `ends`.
  Block body(EndTags ends) {
    skip_operator(":");
    expect(TokenKind::kBlockEnd);
    return statements(ends);
  }
  // The same with a single end tag, which is stepped over.
  Block whole_body(std::string_view end) {
    Block out = body({end});
    next();
    return out;
  }

  void statement(Block& out, EndTags ends) {
    if (!at(TokenKind::kName)) fail("tag name expected");
    const Token& tag = current();
    const std::string& name = tag.text;
    if (name == "for") return out.push_back(for_loop());
    if (name == "if") return out.push_back(if_chain());
    if (name == "set") return out.push_back(set());
    if (name == "with") return out.push_back(with());
    if (name == "macro") return out.push_back(macro());
    if (name == "call") return out.push_back(call_block());
    if (name == "filter") return out.push_back(filter_block());
    if (name == "print") return print(out);
    if (name == "generation" || name == "autoescape") return out.push_back(scope());
    if (name == "break" || name == "continue") {
      next();
      return out.push_back(std::make_unique<Stmt>(name == "break" ? StmtKind::kBreak : StmtKind::kContinue, tag.line));
    }
    if (name == "include" || name == "extends" || name == "import" || name == "from") return out.push_back(loader());
    if (name == "block") {
      throw TemplateError(FailureKind::kUnsupported, "template inheritance ({% block %}) is not supported", tag.line);
    }
    std::string message = fmt::format("Encountered unknown tag '{}'.", name);
    if (ends.size() != 0) message += fmt::format(" Jinja was looking for '{}'.", *ends.begin());
    fail(message);
  }

  void print(Block& out) {
    next();
    bool first = true;
    while (!at(TokenKind::kBlockEnd)) {
      if (!std::exchange(first, false)) expect_operator(",");
      const int line = current().line;
      out.push_back(std::make_unique<PrintStmt>(line, expression()));
    }
  }

  std::unique_ptr<Stmt> for_loop() {
    auto node = std::make_unique<ForStmt>(next().line);
    node->target = target(false, "in");
    expect_name("in");
    node->iterable = tuple(false, "recursive");
    if (skip_name("if")) node->condition = expression();
    node->recursive = skip_name("recursive");
    if (node->recursive) intern("loop");
    node->body = body({"endfor", "else"});
    if (next().text == "else") {
      node->has_otherwise = true;
      node->otherwise = whole_body("endfor");
    }
    return node;
  }

  std::unique_ptr<Stmt> if_chain() {
    auto node = std::make_unique<IfStmt>(next().line);
    int line = node->line;
    while (true) {
      ExprPtr condition = tuple(false);
      Block branch = body({"elif", "else", "endif"});
      node->branches.push_back({line, std::move(condition), std::move(branch)});
      const std::string& tag = next().text;
      line = current().line;
      if (tag == "elif") continue;
      if (tag == "else") node->branches.push_back({line, nullptr, whole_body("endif")});
      return node;
    }
  }

  std::unique_ptr<Stmt> set() {
    const int line = next().line;
    Target to = target(true, {});
    if (skip_operator("=")) {
      auto node = std::make_unique<SetStmt>(line);
      node->target = std::move(to);
      node->value = tuple(true);
      return node;
    }
    auto node = std::make_unique<SetBlockStmt>(line);
    node->target = std::move(to);
    node->filter = filters(nullptr, false);
    node->body = whole_body("endset");
    return node;
  }

  std::unique_ptr<Stmt> with() {
    auto node = std::make_unique<WithStmt>(next().line);
    while (!at(TokenKind::kBlockEnd)) {
      if (!node->assignments.empty()) expect_operator(",");
      Target to = target(false, {});
      expect_operator("=");
      node->assignments.emplace_back(std::move(to), expression());
    }
    node->body = whole_body("endwith");
    return node;
  }

  std::string parameter_name() {
    const Token& token = expect(TokenKind::kName);
    check_assignable(token);
    return token.text;
  }

  void signature(MacroStmt& macro) {
    expect_operator("(");
    while (!at_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      const int line = current().line;
      std::string name = parameter_name();
      ExprPtr fallback;
      if (skip_operator("=")) {
        fallback = expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
        fail_at(line, "non-default argument follows default argument");
      }
      const Symbol symbol = intern(name);
      macro.parameters.push_back({symbol, std::move(name), std::move(fallback)});
    }
    expect_operator(")");
  }

  void macro_body(MacroStmt& macro, std::string_view end) {
    const NamesUsed outside = std::exchange(used_, {});
    macro.body = whole_body(end);
    macro.uses_caller = used_.caller;
    macro.uses_varargs = used_.varargs;
    macro.uses_kwargs = used_.kwargs;
    used_ = {outside.caller || used_.caller, outside.varargs || used_.varargs, outside.kwargs || used_.kwargs};
  }

  std::unique_ptr<Stmt> macro() {
    auto node = std::make_unique<MacroStmt>(next().line);
    node->name = parameter_name();
    node->symbol = intern(node->name);
    signature(*node);
    macro_body(*node, "endmacro");
    return node;
  }

  std::unique_ptr<Stmt> call_block() {
    auto node = std::make_unique<CallBlockStmt>(next().line);
    node->body.line = node->line;
    node->body.name = "caller";
    if (at_operator("(")) signature(node->body);
    node->call = expression();
    if (node->call->kind != ExprKind::kCall) fail_at(node->line, "expected call");
    macro_body(node->body, "endcall");
    return node;
  }

  std::unique_ptr<Stmt> filter_block() {
    auto node = std::make_unique<FilterBlockStmt>(next().line);
    node->filter = filters(nullptr, true);
    node->body = whole_body("endfilter");
    return node;
  }

  std::unique_ptr<Stmt> scope() {
    const Token& tag = next();
    auto node = std::make_unique<ScopeStmt>(tag.line);
    node->is_function = tag.text == "generation";
    if (tag.text == "autoescape") {
      const ExprPtr value = expression();
      const bool is_false = value->kind == ExprKind::kConst &&
                            static_cast<const ConstExpr&>(*value).value.is(Type::kBool) &&
                            !static_cast<const ConstExpr&>(*value).value.as_bool();
      if (!is_false) throw TemplateError(FailureKind::kUnsupported, "HTML autoescape is not supported", tag.line);
    }
    node->body = whole_body("end" + tag.text);
    return node;
  }

  // There are no other templates to load: the tag is only read, and fails when it is reached.
  std::unique_ptr<Stmt> loader() {
    const Token& tag = next();
    expression();
    if (tag.text == "import") {
      expect_name("as");
      parameter_name();
    }
    if (tag.text == "from") {
      expect_name("import");
      parameter_name();
    }
    while (!at(TokenKind::kBlockEnd)) {  // "with context", "ignore missing", more names
      if (at(TokenKind::kEnd)) fail_unexpected("end of statement block");
      next();
    }
    return std::make_unique<Stmt>(StmtKind::kLoader, tag.line);
  }

  void check_assignable(const Token& token) const {
    static constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), token.text) != std::end(kConstants)) {
      fail_at(token.line, "can't assign to 'const'");
    }
  }

  // One name, or a tuple of targets with or without parentheses.
  Target target(bool with_namespace, std::string_view stop_name) {
    const int line = current().line;
    Target out = targets(with_namespace, stop_name, false);
    if (stop_name == "in" && assigns_loop(out)) {
      fail_at(line, "Can't assign to special loop variable in for-loop target");
    }
    return out;
  }

  static bool is_loop(const std::string& name) { return name == "loop"; }
  bool assigns_loop(const Target& to) const {
    if (to.kind == Target::Kind::kName) return is_loop(program_.names[to.symbol]);
    return std::any_of(to.parts.begin(), to.parts.end(), [&](const Target& part) { return assigns_loop(part); });
  }

  Target targets(bool with_namespace, std::string_view stop_name, bool explicit_parentheses) {
    const Nested nested(*this);
    Target out{Target::Kind::kTuple, 0, {}, {}};
    bool is_tuple = false;
    while (true) {
      if (!out.parts.empty()) expect_operator(",");
      if (at_tuple_end(stop_name)) break;
      out.parts.push_back(single_target(with_namespace));
      if (!at_operator(",")) break;
      is_tuple = true;
    }
    if (is_tuple || (out.parts.empty() && explicit_parentheses)) return out;
    if (out.parts.empty()) fail(fmt::format("Expected an expression, got '{}'", describe(current())));
    Target only = std::move(out.parts[0]);
    return only;
  }

  Target single_target(bool with_namespace) {
    if (skip_operator("(")) {
      Target inner = targets(false, {}, true);
      expect_operator(")");
      return inner;
    }
    if (!at(TokenKind::kName)) {
      const bool is_value = at(TokenKind::kString) || at(TokenKind::kInteger) || at(TokenKind::kFloat);
      fail(is_value ? "can't assign to 'const'" : fmt::format("unexpected '{}'", describe(current())));
    }
    const Token& name = next();
    check_assignable(name);
    Target out{Target::Kind::kName, intern(name.text), {}, {}};
    if (with_namespace && skip_operator(".")) {
      out.kind = Target::Kind::kAttribute;
      out.attribute = expect(TokenKind::kName).text;
    }
    return out;
  }
};

}  // namespace

Program parse_program(std::string_view source, const Options& options) {
  if (!utf8::is_valid(source)) throw TemplateError(FailureKind::kSyntax, "the template is not valid UTF-8");
  Program program;
  Parser(tokenize(source, options), program).run();
  return program;
}

}  // namespace sluice::jinja
