#include "chat/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "chat/jinja/unicode.h"

namespace sluice::jinja {
namespace {

// \r\n and \r become \n; the last newline goes unless it is to be kept.
std::string normalize_newlines(std::string_view source, bool keep_trailing_newline) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!keep_trailing_newline && !out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

struct LexError {
  std::string message;
  int line;
};

class Lexer {
 public:
  Lexer(std::string_view source, const Options& options)
      : source_(normalize_newlines(source, options.keep_trailing_newline)), options_(options) {}

  std::vector<Token> run() {
    try {
      while (at_ < source_.size()) text_and_tag();
      push(TokenKind::kEnd, tokens_.empty() ? 1 : tokens_.back().line);
    } catch (LexError& error) {
      push(TokenKind::kError, error.line, std::move(error.message));
    }
    return std::move(tokens_);
  }

 private:
  enum class Tag { kPrint, kBlock, kComment, kRaw };

  void push(TokenKind kind, int line, std::string text = {}) { tokens_.push_back({kind, line, std::move(text)}); }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }
  [[noreturn]] void lex_error(std::string message) const { throw LexError{std::move(message), line_}; }

  // Moves on, counting lines.
  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }
  void skip_space() { advance(rest().size() - unicode::trim_left(rest()).size()); }

  // Length of "{%- raw %}" at `at`, with the white space that "-%}" takes; 0 if there is none. A "+" can't stand before
  // the closing "%}" of raw.
  size_t match_raw_begin(size_t at) const {
    std::string_view text = std::string_view(source_).substr(at);
    const size_t all = text.size();
    if (!text.starts_with("{%")) return 0;
    text.remove_prefix(2);
    if (text.starts_with("-") || text.starts_with("+")) text.remove_prefix(1);
    text = unicode::trim_left(text);
    if (!text.starts_with("raw")) return 0;
    text = unicode::trim_left(text.substr(3));
    if (text.starts_with("-%}")) return all - unicode::trim_left(text.substr(3)).size();
    return text.starts_with("%}") ? all - text.size() + 2 : 0;
  }

  // Length of "{% endraw %}" at `at` with what its end takes; 0 if there is none.
  size_t match_raw_end(size_t at) const {
    std::string_view text = std::string_view(source_).substr(at);
    const size_t all = text.size();
    if (!text.starts_with("{%")) return 0;
    text.remove_prefix(2);
    if (text.starts_with("-") || text.starts_with("+")) text.remove_prefix(1);
    text = unicode::trim_left(text);
    if (!text.starts_with("endraw")) return 0;
    text = unicode::trim_left(text.substr(6));
    if (text.starts_with("+%}")) return all - text.size() + 3;
    if (text.starts_with("-%}")) return all - unicode::trim_left(text.substr(3)).size();
    if (!text.starts_with("%}")) return 0;
    return all - text.size() + 2 + (options_.trim_blocks && text.substr(2).starts_with("\n") ? 1 : 0);
  }

  // The text in front of a tag whose mark is `mark` ('-', '+' or none), cut as the mark and lstrip_blocks ask.
  std::string_view strip_before(std::string_view text, char mark, bool may_lstrip) const {
    if (mark == '-') return unicode::trim_right(text);
    if (mark == '+' || !options_.lstrip_blocks || !may_lstrip) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_start == 0 && !line_starting_) return text;
    return unicode::trim_left(text.substr(line_start)).empty() ? text.substr(0, line_start) : text;
  }

  void push_text(std::string_view text) {
    if (!text.empty()) push(TokenKind::kText, line_, std::string(text));
  }

  // One piece of text and the tag behind it.
  void text_and_tag() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        push_text(rest());
        advance(source_.size() - at_);
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const size_t raw_bytes = match_raw_begin(tag);
    const char next = source_[tag + 1];
    const Tag kind = raw_bytes != 0 ? Tag::kRaw : next == '{' ? Tag::kPrint : next == '%' ? Tag::kBlock : Tag::kComment;
    const char mark = mark_at(tag + 2);
    push_text(strip_before(std::string_view(source_).substr(at_, tag - at_), mark, kind != Tag::kPrint));
    advance(tag - at_);
    line_starting_ = false;
    if (kind == Tag::kRaw) return raw(raw_bytes);
    const int line = line_;
    advance(mark == '\0' ? 2 : 3);
    if (kind == Tag::kComment) return comment(line);
    push(kind == Tag::kPrint ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, line);
    inside(kind);
  }

  char mark_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  void comment(int line) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) {
      if (at_ == source_.size()) return;  // as jinja2: an opening at the very end is nothing
      throw LexError{"Missing end of comment tag", line};
    }
    const char mark = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_tag(mark);
  }

  // What the end of a block or comment with this mark takes of the text behind it.
  void after_tag(char mark) {
    const size_t before = at_;
    if (mark == '-') {
      skip_space();
    } else if (mark == '\0' && options_.trim_blocks && looking_at("\n")) {
      advance(1);
    }
    line_starting_ = at_ > before && source_[at_ - 1] == '\n';
  }

  void raw(size_t begin_bytes) {
    const int line = line_;
    advance(begin_bytes);
    line_starting_ = source_[at_ - 1] == '\n';
    if (at_ == source_.size()) return;  // as jinja2: an opening at the very end is nothing
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const size_t end_bytes = match_raw_end(tag);
      if (end_bytes == 0) continue;
      push_text(strip_before(std::string_view(source_).substr(at_, tag - at_), mark_at(tag + 2), true));
      advance(tag - at_ + end_bytes);
      line_starting_ = source_[at_ - 1] == '\n';
      return;
    }
    throw LexError{"Missing end of raw directive", line};
  }

  // Tokens up to the end of the tag. Inside brackets the end isn't looked for: }} closes two dicts there.
  void inside(Tag kind) {
    std::string brackets;
    while (at_ < source_.size()) {
      if (brackets.empty() && tag_end(kind)) return;
      const size_t before = at_;
      skip_space();
      if (at_ == before) token(brackets);
    }
  }

  bool tag_end(Tag kind) {
    const std::string_view end = kind == Tag::kPrint ? "}}" : "%}";
    char mark = mark_at(at_);
    if (mark == '+' && kind == Tag::kPrint) return false;
    if (std::string_view(source_).substr(at_ + (mark != '\0' ? 1 : 0), 2) != end) return false;
    push(kind == Tag::kPrint ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, line_, std::string(end));
    advance(mark == '\0' ? 2 : 3);
    if (kind == Tag::kBlock) {
      after_tag(mark);
    } else {
      const size_t before = at_;
      if (mark == '-') skip_space();
      line_starting_ = at_ > before && source_[at_ - 1] == '\n';
    }
    return true;
  }

  void token(std::string& brackets) {
    const char c = source_[at_];
    if (is_ascii_digit(c)) return number();
    if (c == '\'' || c == '"') return string_literal();
    if (const size_t bytes = name_bytes()) {
      push(TokenKind::kName, line_, std::string(rest().substr(0, bytes)));
      return advance(bytes);
    }
    operator_token(brackets);
  }

  size_t name_bytes() const {
    size_t bytes = 0;
    std::string_view text = rest();
    while (bytes < text.size()) {
      const auto decoded = utf8::decode(text.substr(bytes));
      const char32_t c = decoded.code_point;
      if (c != '_' && !unicode::is_alnum(c)) break;
      bytes += decoded.length;
    }
    return bytes;
  }

  // Digits with single underscores between them, from `at`; their length.
  template <typename IsDigit>
  size_t digits(size_t at, IsDigit is_digit) const {
    size_t end = at;
    while (end < source_.size()) {
      if (is_digit(source_[end])) {
        ++end;
      } else if (source_[end] == '_' && end > at && end + 1 < source_.size() && is_digit(source_[end + 1])) {
        end += 2;
      } else {
        break;
      }
    }
    return end - at;
  }
  size_t decimal_digits(size_t at) const { return digits(at, is_ascii_digit); }

  // Length of the float at the front, 0 if it is an integer: a fraction or an exponent is what makes a float. Behind a
  // dot there are no floats (x.1.2 is two subscripts).
  size_t float_bytes() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return 0;
    size_t end = at_ + decimal_digits(at_);
    bool is_float = false;
    if (end < source_.size() && source_[end] == '.') {
      if (const size_t fraction = decimal_digits(end + 1)) end += 1 + fraction, is_float = true;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (const size_t exponent = decimal_digits(end + 1 + sign)) end += 1 + sign + exponent, is_float = true;
    }
    return is_float ? end - at_ : 0;
  }

  void number() {
    const size_t float_size = float_bytes();
    size_t size = float_size;
    int base = 10;
    size_t prefix = 0;
    if (size == 0) {
      if (source_[at_] == '0') {
        size = prefixed_digits(base, prefix);
        if (size == 0) size = digits(at_, [](char c) { return c == '0'; });
      } else {
        size = decimal_digits(at_);
      }
    }
    std::string text(rest().substr(prefix, size - prefix));
    std::erase(text, '_');
    Token token{float_size != 0 ? TokenKind::kFloat : TokenKind::kInteger, line_, std::string(rest().substr(0, size))};
    if (float_size != 0) {
      const auto result = std::from_chars(text.data(), text.data() + text.size(), token.number);
      if (result.ec == std::errc::result_out_of_range) token.number = out_of_range_float(text);
    } else if (std::from_chars(text.data(), text.data() + text.size(), token.integer, base).ec != std::errc()) {
      throw TemplateError(FailureKind::kUnsupported, fmt::format("the integer {} does not fit in 64 bits", token.text),
                          line_);
    }
    tokens_.push_back(std::move(token));
    advance(size);
  }

  // from_chars gives no value when a number is too large or too small: infinity or zero by the exponent's sign.
  static double out_of_range_float(const std::string& text) {
    const size_t exponent = text.find_first_of("eE");
    const bool tiny = exponent != std::string::npos && text[exponent + 1] == '-';
    return tiny ? 0.0 : HUGE_VAL;
  }

  // Length of 0x1F, 0o17 or 0b101 at the front, 0 if there is none.
  size_t prefixed_digits(int& base, size_t& prefix) const {
    if (at_ + 1 >= source_.size()) return 0;
    const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
    const int wanted = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (wanted == 0) return 0;
    const auto is_digit = [wanted](char c) {
      const int value = is_ascii_digit(c)                        ? c - '0'
                        : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                 : 99;
      return value < wanted;
    };
    const size_t first = at_ + 2 + (at_ + 2 < source_.size() && source_[at_ + 2] == '_' ? 1 : 0);
    const size_t size = digits(first, is_digit);
    if (size == 0) return 0;
    base = wanted;
    prefix = first - at_;
    return prefix + size;
  }

  void string_literal() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) lex_error(fmt::format("unexpected char {} at {}: a string without an end", quote, at_));
    push(TokenKind::kString, line_, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '\\') {
        out += text[i++];
        continue;
      }
      ++i;
      i += escape(out, text.substr(i));
    }
    return out;
  }

  // Appends what the escape behind a backslash stands for; returns its length.
  size_t escape(std::string& out, std::string_view text) const {
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = text[0];
    if (const size_t index = kNames.find(c); index != std::string_view::npos) {
      out += kValues[index];
      return 1;
    }
    if (c == '\n') return 1;
    if (c >= '0' && c <= '7') return octal_escape(out, text);
    if (c == 'x') return hex_escape(out, text, 2);
    if (c == 'u') return hex_escape(out, text, 4);
    if (c == 'U') return hex_escape(out, text, 8);
    if (c == 'N') throw TemplateError(FailureKind::kUnsupported, "\\N{...} escapes are not supported", line_);
    out += '\\';
    if (static_cast<unsigned char>(c) < 0x80) {
      out += c;
      return 1;
    }
    // jinja2 writes characters beyond ASCII as escapes before it reads escapes, so the backslash eats that of the
    // escape.
    const auto decoded = utf8::decode(text);
    const auto point = static_cast<uint32_t>(decoded.code_point);
    out += point < 0x100     ? fmt::format("x{:02x}", point)
           : point < 0x10000 ? fmt::format("u{:04x}", point)
                             : fmt::format("U{:08x}", point);
    return decoded.length;
  }

  static size_t octal_escape(std::string& out, std::string_view text) {
    size_t size = 0;
    char32_t point = 0;
    while (size < 3 && size < text.size() && text[size] >= '0' && text[size] <= '7') {
      point = point * 8 + static_cast<char32_t>(text[size++] - '0');
    }
    utf8::append(out, point);
    return size;
  }

  size_t hex_escape(std::string& out, std::string_view text, size_t digit_count) const {
    uint32_t point = 0;
    const char* begin = text.data() + 1;
    if (text.size() < 1 + digit_count) lex_error(fmt::format("truncated \\{} escape", text[0]));
    const auto result = std::from_chars(begin, begin + digit_count, point, 16);
    if (result.ptr != begin + digit_count) lex_error(fmt::format("truncated \\{} escape", text[0]));
    if (point > 0x10FFFF) lex_error("illegal Unicode character");
    if (point >= 0xD800 && point <= 0xDFFF) {
      throw TemplateError(FailureKind::kUnsupported, "surrogate escapes are not supported", line_);
    }
    utf8::append(out, point);
    return 1 + digit_count;
  }

  void operator_token(std::string& brackets) {
    static constexpr std::array<std::string_view, 6> kPairs = {"**", "//", "==", "!=", "<=", ">="};
    static constexpr std::string_view kSingles = "+-*/%~[](){}<>=.:|,;";
    size_t bytes = 0;
    for (const std::string_view pair : kPairs) {
      if (looking_at(pair)) bytes = 2;
    }
    const char c = source_[at_];
    if (bytes == 0 && kSingles.find(c) != std::string_view::npos) bytes = 1;
    if (bytes == 0)
      lex_error(fmt::format("unexpected char '{}' at {}", rest().substr(0, unicode::front_bytes(rest())), at_));
    if (bytes == 1) balance(brackets, c);
    push(TokenKind::kOperator, line_, std::string(rest().substr(0, bytes)));
    advance(bytes);
  }

  void balance(std::string& brackets, char c) const {
    if (c == '(') brackets += ')';
    if (c == '[') brackets += ']';
    if (c == '{') brackets += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets.empty()) lex_error(fmt::format("unexpected '{}'", c));
    if (brackets.back() != c) lex_error(fmt::format("unexpected '{}', expected '{}'", c, brackets.back()));
    brackets.pop_back();
  }

  std::string source_;
  Options options_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // whether the text at at_ begins a line
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const Options& options) { return Lexer(source, options).run(); }

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "template data";
    case TokenKind::kPrintBegin:
      return "begin of print statement";
    case TokenKind::kPrintEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return token.text;
    case TokenKind::kString:
      return "string";
    case TokenKind::kInteger:
      return "integer";
    case TokenKind::kFloat:
      return "float";
    case TokenKind::kError:
      return token.text;
    case TokenKind::kEnd:
      return "end of template";
  }
  return token.text;
}

}  // namespace sluice::jinja
