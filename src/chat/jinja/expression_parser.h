// The part of the parser that reads expressions, and the token stream that both parts read.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"

namespace sluice::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, Program& program);

  // --- tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& look_ahead() const { return tokens_[at_ + (at_ + 1 < tokens_.size() ? 1 : 0)]; }
  // Steps to the next token and returns the one stepped over. Throws when the next one is the lexer's error.
  const Token& next();
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view text) const { return at(TokenKind::kOperator) && current().text == text; }
  bool at_name(std::string_view text) const { return at(TokenKind::kName) && current().text == text; }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  const Token& expect(TokenKind kind);
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  [[noreturn]] void fail(const std::string& message) const { fail_at(current().line, message); }
  [[noreturn]] static void fail_at(int line, const std::string& message);
  [[noreturn]] void fail_unexpected(std::string_view wanted) const;

  Symbol intern(const std::string& name);

  // Counts nesting for as long as it lives.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // --- expressions
  ExprPtr expression();     // with inline if
  ExprPtr or_expression();  // without
  // One expression or, with commas, a tuple. `stop_name` may end it too. `explicit_parentheses`: () is a tuple.
  ExprPtr tuple(bool with_conditional, std::string_view stop_name = {}, bool explicit_parentheses = false);
  bool at_tuple_end(std::string_view stop_name) const;
  ExprPtr unary(bool with_filters);
  CallArguments call_arguments();
  // `operand` | name(...) | ...; with a null operand the first filter has no pipe in front when `inline_start`.
  ExprPtr filters(ExprPtr operand, bool inline_start);

  // Names read since the flags were last cleared; a macro that doesn't read them doesn't take them.
  struct NamesUsed {
    bool caller = false, varargs = false, kwargs = false;
  };

  Program& program_;
  NamesUsed used_;

 private:
  ExprPtr and_expression();
  ExprPtr not_expression();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr primary();
  ExprPtr name_or_constant();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filter_chain(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr bracket_subscript(ExprPtr node, int line);
  ExprPtr call(ExprPtr callee);
  ExprPtr test(ExprPtr node);
  std::string dotted_name();
  // Sets the node's height from its children and checks the limit.
  template <typename Node, typename... Children>
  ExprPtr finish(std::unique_ptr<Node> node, const Children&... children);
  void raise_height(Expr& node, const Expr* child) const;
  void raise_height(Expr& node, const CallArguments& arguments) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  std::map<std::string, Symbol, std::less<>> symbols_;
};

}  // namespace sluice::jinja
