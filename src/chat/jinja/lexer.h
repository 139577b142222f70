// Cuts a template into text and tokens, with jinja2's whitespace rules: trim_blocks, lstrip_blocks, the marks - and +,
// raw blocks, comments. Not here: what the tokens mean (parser.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/jinja.h"

namespace sluice::jinja {

enum class TokenKind : uint8_t {
  kText,        // to be printed as it is
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,   // text: the string's value
  kInteger,  // integer
  kFloat,    // number
  kOperator,
  kError,  // the lexer could not go on here; text says why
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // as written, but for kString
  int64_t integer = 0;
  double number = 0;
};

// All tokens, kEnd or kError last: an error is reported only when the parser gets there, since an earlier mistake of
// grammar comes first. `source` must be valid UTF-8.
std::vector<Token> tokenize(std::string_view source, const Options& options);

// "end of print statement" and the like: a token as error messages name it.
std::string describe(const Token& token);

}  // namespace sluice::jinja
