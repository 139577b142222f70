// The scanners against a small backtracking matcher of the regular expressions that they stand for.
#include "chat/pretokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/unicode.h"

namespace sluice::chat {
namespace {

using Text = std::u32string;

std::string to_utf8(const Text& text) {
  std::string out;
  for (const char32_t c : text) utf8::append(out, c);
  return out;
}

std::vector<std::string> split(std::string_view pre, std::string_view text) {
  const PreTokenizer pre_tokenizer(pre);
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t length = pre_tokenizer.next(text);
    out.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return out;
}

// X{least,most}, greedy.
struct Atom {
  std::function<bool(char32_t)> belongs;
  size_t least, most;
};
struct Alternative {
  std::vector<Atom> atoms;
  bool before_non_space = true;  // false: (?!\S) follows
};

constexpr size_t kMany = 1000;

bool is(char32_t c, CodePointClass kind) { return classify(c) == kind; }
bool letter(char32_t c) { return is(c, CodePointClass::kLetter); }
bool mark(char32_t c) { return is(c, CodePointClass::kMark); }
bool number(char32_t c) { return is(c, CodePointClass::kNumber); }
bool space(char32_t c) { return is(c, CodePointClass::kSpace); }
bool newline(char32_t c) { return c == '\r' || c == '\n'; }
bool blank(char32_t c) { return c == ' '; }

// The end of the greedy match with backtracking, nullopt if there is none.
std::optional<size_t> match(const Text& text, size_t from, const Alternative& alternative, size_t atom = 0) {
  if (atom == alternative.atoms.size()) {
    if (!alternative.before_non_space && from < text.size() && !space(text[from])) return std::nullopt;
    return from;
  }
  const Atom& a = alternative.atoms[atom];
  size_t count = 0;
  while (count < a.most && from + count < text.size() && a.belongs(text[from + count])) ++count;
  for (size_t n = count + 1; n-- > a.least;) {
    if (const auto end = match(text, from + n, alternative, atom + 1)) return end;
  }
  return std::nullopt;
}

std::vector<Alternative> contractions(bool caseless) {
  std::vector<Alternative> out;
  for (const char* letters : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    Alternative alternative;
    alternative.atoms.push_back({[](char32_t c) { return c == '\''; }, 1, 1});
    for (const char* p = letters; *p; ++p) {
      const auto lower = static_cast<char32_t>(*p);
      alternative.atoms.push_back({[=](char32_t c) {
                                     if (!caseless) return c == lower;
                                     return c == lower || c == lower - 32 || (lower == 's' && c == 0x17F);
                                   },
                                   1, 1});
    }
    out.push_back(alternative);
  }
  return out;
}

std::vector<Alternative> expression(std::string_view pre) {
  const bool gpt2 = pre == "gpt-2" || pre == "smollm" || pre == "default";
  const bool marks = pre == "qwen35";
  const auto word = [=](char32_t c) { return letter(c) || (marks && mark(c)); };
  const auto symbol = [=](char32_t c) { return !space(c) && !letter(c) && !number(c) && !(marks && mark(c)); };
  const auto lead = [](char32_t c) { return !newline(c) && !letter(c) && !number(c); };
  std::vector<Alternative> out = contractions(!gpt2);
  if (gpt2) {
    out.push_back({{{blank, 0, 1}, {letter, 1, kMany}}});
    out.push_back({{{blank, 0, 1}, {number, 1, kMany}}});
    out.push_back({{{blank, 0, 1}, {symbol, 1, kMany}}});
  } else {
    out.push_back({{{lead, 0, 1}, {word, 1, kMany}}});
    out.push_back({{{number, 1, pre == "llama-bpe" ? size_t{3} : size_t{1}}}});
    out.push_back({{{blank, 0, 1}, {symbol, 1, kMany}, {newline, 0, kMany}}});
    out.push_back({{{space, 0, kMany}, {newline, 1, kMany}}});
  }
  out.push_back({{{space, 1, kMany}}, false});
  out.push_back({{{space, 1, kMany}}});
  return out;
}

std::vector<std::string> slow_split(std::string_view pre, const Text& text) {
  std::vector<std::string> out;
  if (pre == "smollm") {  // each number alone, and the GPT-2 expression on what is between
    Text between;
    const auto flush = [&] {
      for (const auto& piece : slow_split("gpt-2", between)) out.push_back(piece);
      between.clear();
    };
    for (const char32_t c : text) {
      if (!number(c)) {
        between += c;
        continue;
      }
      flush();
      out.push_back(to_utf8({c}));
    }
    flush();
    return out;
  }
  const auto alternatives = expression(pre);
  for (size_t from = 0; from < text.size();) {
    size_t end = from;
    for (const Alternative& alternative : alternatives) {
      const auto found = match(text, from, alternative);
      if (found) {
        end = *found;
        break;
      }
    }
    EXPECT_GT(end, from) << "the expressions cover every character";
    if (end == from) break;
    out.push_back(to_utf8(text.substr(from, end - from)));
    from = end;
  }
  return out;
}

constexpr std::string_view kNames[] = {"qwen35", "qwen2", "llama-bpe", "smollm", "gpt-2", "default"};

TEST(PreTokenizer, CutsRandomTextAsTheRegularExpressions) {
  // Every class and every character that an expression names.
  const Text alphabet =
      U"aZsStTrRevmdlL\u017F\u00E9\u597D 1\u0663\u00BD''''!.\u0301\u0E31\n\n\r\t   \u00A0\u3000\U0001F680";
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    Text text;
    for (size_t n = 1 + random() % 14; n > 0; --n) text += alphabet[random() % alphabet.size()];
    for (const auto name : kNames) ASSERT_EQ(split(name, to_utf8(text)), slow_split(name, text)) << name;
  }
}

using Pieces = std::vector<std::string>;

TEST(PreTokenizer, Qwen35KeepsMarksWithLettersAndQwen2DoesNot) {
  EXPECT_EQ(split("qwen35", "e\u0301t\u0301e"), (Pieces{"e\u0301t\u0301e"}));
  EXPECT_EQ(split("qwen2", "e\u0301t\u0301e"), (Pieces{"e", "\u0301t", "\u0301e"}));
}

TEST(PreTokenizer, DigitsStandAloneInThreesOrTogether) {
  EXPECT_EQ(split("qwen35", "1234"), (Pieces{"1", "2", "3", "4"}));
  EXPECT_EQ(split("llama-bpe", "1234"), (Pieces{"123", "4"}));
  EXPECT_EQ(split("gpt-2", "x 1234"), (Pieces{"x", " 1234"}));
  EXPECT_EQ(split("smollm", "x  12"), (Pieces{"x", "  ", "1", "2"}));
}

TEST(PreTokenizer, WhiteSpaceLeavesItsLastCharacterToTheWord) {
  EXPECT_EQ(split("qwen35", "a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(split("qwen35", "a \n \n  b"), (Pieces{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(split("qwen35", "a   "), (Pieces{"a", "   "}));
}

TEST(PreTokenizer, UnknownNameIsRefusedWithTheKnownOnes) {
  try {
    PreTokenizer("qwen9");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    const std::string message = error.what();
    EXPECT_NE(message.find("tokenizer.ggml.pre"), std::string::npos) << message;
    EXPECT_NE(message.find("\"qwen9\""), std::string::npos) << message;
    EXPECT_NE(message.find("qwen35, qwen2, llama-bpe, smollm, gpt-2, default"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace sluice::chat
