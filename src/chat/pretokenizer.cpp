#include "chat/pretokenizer.h"

#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/unicode.h"

namespace sluice::chat {

namespace {

using Rules = PreTokenizer::Rules;
using enum CodePointClass;

// The expressions, in the notation of the reference tokenizers' configurations.
//   kGpt2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   kGpt4: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|
//   ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// llama-bpe has \p{N}{1,3}; qwen35 has [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}]+ for [^\s\p{L}\p{N}]+; smollm
// cuts at each \p{N} and applies the GPT-2 expression to what is between.
constexpr Rules kKnown[] = {
    // name, family, marks_are_letters, digits_together, numbers_cut_first, whole_tokens_first, adds_bos
    {"qwen35", Rules::kGpt4, true, 1, false, false, false},    //
    {"qwen2", Rules::kGpt4, false, 1, false, false, false},    //
    {"llama-bpe", Rules::kGpt4, false, 3, false, true, true},  //
    {"smollm", Rules::kGpt2, false, 1, true, false, false},    //
    {"gpt-2", Rules::kGpt2, false, 0, false, false, false},    //
    {"default", Rules::kGpt2, false, 0, false, false, false},
};

const Rules& find_rules(std::string_view name) {
  std::string known;
  for (const Rules& rules : kKnown) {
    if (rules.name == name) return rules;
    known += known.empty() ? "" : ", ";
    known += rules.name;
  }
  fail(ErrorKind::kUnsupported,
       "tokenizer.ggml.pre: pre-tokenizer \"{}\" is unknown (known: {}); with another the model would read wrong "
       "tokens, so use a model with one of these",
       name, known);
}

// One scan over the text behind a position. A rule returns the end of its match at the front of the text, 0 for none.
class Scanner {
 public:
  Scanner(const Rules& rules, std::string_view text) : rules_(rules), text_(text) {}

  size_t gpt2() const {
    size_t end = 0;
    const auto is_number = [](Char c) { return c.kind == kNumber; };
    if ((end = rules_.numbers_cut_first ? numbers() : after_optional_space(is_number))) return end;
    if ((end = contraction())) return end;
    if ((end = after_optional_space([this](Char c) { return is_letter(c); }))) return end;
    if ((end = after_optional_space([this](Char c) { return is_symbol(c); }))) return end;
    return white_space();
  }

  size_t gpt4() const {
    size_t end = 0;
    if ((end = contraction())) return end;
    if ((end = word())) return end;
    if ((end = numbers())) return end;
    if ((end = after_optional_space([this](Char c) { return is_symbol(c); }))) return run(end, is_newline);
    if ((end = lines())) return end;
    return white_space();
  }

 private:
  struct Char {
    char32_t code_point;
    CodePointClass kind;
    uint8_t length;  // in bytes
  };

  Char at(size_t position) const {
    const auto byte = static_cast<uint8_t>(text_[position]);
    if (byte < 0x80) return {byte, classify(byte), 1};
    const utf8::Decoded d = utf8::decode(text_.substr(position));
    return {d.code_point, classify(d.code_point), d.length};
  }

  bool is_letter(Char c) const { return c.kind == kLetter || (rules_.marks_are_letters && c.kind == kMark); }
  bool is_symbol(Char c) const { return c.kind == kOther || (!rules_.marks_are_letters && c.kind == kMark); }
  static bool is_newline(Char c) { return c.code_point == '\n' || c.code_point == '\r'; }

  // The end of the longest run of such characters from `position`.
  template <typename Predicate>
  size_t run(size_t position, Predicate belongs) const {
    while (position < text_.size()) {
      const Char c = at(position);
      if (!belongs(c)) break;
      position += c.length;
    }
    return position;
  }

  // " ?X+"
  template <typename Predicate>
  size_t after_optional_space(Predicate belongs) const {
    const size_t start = text_[0] == ' ' ? 1 : 0;
    const size_t end = run(start, belongs);
    return end > start ? end : 0;
  }

  // 's 't 're 've 'm 'll 'd; in the GPT-4 family in any case, where caseless matching takes U+017F (long s) for an s.
  size_t contraction() const {
    if (text_[0] != '\'') return 0;
    const bool caseless = rules_.family == Rules::kGpt4;
    const auto letter = [&](size_t position) -> char {
      if (position >= text_.size()) return 0;
      const char c = text_[position];
      return caseless && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = letter(1), second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
    constexpr std::string_view kLongS = "\xC5\xBF";
    if (caseless && text_.substr(1, 2) == kLongS) return 3;
    return 0;
  }

  // "[^\r\n\p{L}\p{N}]?LETTER+"
  size_t word() const {
    const Char first = at(0);
    if (first.kind != kLetter && first.kind != kNumber && !is_newline(first)) {
      const size_t end = run(first.length, [this](Char c) { return is_letter(c); });
      if (end > first.length) return end;
    }
    return run(0, [this](Char c) { return is_letter(c); });  // a lone mark may be a letter and is then the word
  }

  // "\p{N}{1,limit}"
  size_t numbers() const {
    size_t left = rules_.digits_together;
    return run(0, [&left](Char c) { return c.kind == kNumber && left-- > 0; });
  }

  // "\s*[\r\n]+": white space up to the last line break in it.
  size_t lines() const {
    size_t end = 0;
    for (size_t position = 0; position < text_.size();) {
      const Char c = at(position);
      if (c.kind != kSpace) break;
      position += c.length;
      if (is_newline(c)) end = position;
    }
    return end;
  }

  // "\s+(?!\S)|\s+": a run of white space leaves its last character to the word that follows, unless it is alone.
  size_t white_space() const {
    size_t end = 0, last_start = 0;
    while (end < text_.size()) {
      const Char c = at(end);
      if (c.kind != kSpace) {
        const bool ends_text = rules_.numbers_cut_first && c.kind == kNumber;
        return last_start > 0 && !ends_text ? last_start : end;
      }
      last_start = end;
      end += c.length;
    }
    return end;
  }

  const Rules& rules_;
  std::string_view text_;
};

}  // namespace

PreTokenizer::PreTokenizer(std::string_view name) : rules_(&find_rules(name)) {}

size_t PreTokenizer::next(std::string_view text) const {
  const Scanner scanner(*rules_, text);
  return rules_->family == Rules::kGpt2 ? scanner.gpt2() : scanner.gpt4();
}

}  // namespace sluice::chat
