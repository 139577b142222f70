#include "chat/special_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "chat/small_vocabulary.h"
#include "chat/tokenizer.h"

namespace sluice::chat {
namespace {

using Ids = std::vector<int32_t>;
using Found = std::vector<std::pair<size_t, int32_t>>;  // begin, id

Found find(const VocabularyData& data, const std::string& text, bool parse_special) {
  VocabularyData copy = data;
  const Vocabulary vocabulary(copy);
  Found out;
  for (const auto& match : SpecialTokens(vocabulary).find(text, parse_special)) {
    EXPECT_EQ(text.substr(match.begin, match.length), data.tokens[static_cast<size_t>(match.id)]);
    out.emplace_back(match.begin, match.id);
  }
  return out;
}

// One length after another, longest first, from left to right, in what is left of the text.
Found slow_find(const VocabularyData& data, const std::string& text, bool parse_special) {
  Found out;
  std::vector<bool> taken(text.size());
  for (size_t length = text.size(); length > 0; --length) {
    for (size_t begin = 0; begin + length <= text.size(); ++begin) {
      if (std::find(taken.begin() + static_cast<std::ptrdiff_t>(begin),
                    taken.begin() + static_cast<std::ptrdiff_t>(begin + length),
                    true) != taken.begin() + static_cast<std::ptrdiff_t>(begin + length)) {
        continue;
      }
      for (size_t id = 0; id < data.tokens.size(); ++id) {
        const bool eligible =
            data.types[id] == TokenType::kUserDefined || (parse_special && data.types[id] == TokenType::kControl);
        if (!eligible || data.tokens[id] != text.substr(begin, length)) continue;
        out.emplace_back(begin, static_cast<int32_t>(id));
        std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(begin), length, true);
      }
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

TEST(SpecialTokens, LongestWinsOverTheWholeTextOnRandomVocabularies) {
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    VocabularyData data;
    for (int n = 0; n < 6; ++n) {
      std::string text;
      for (size_t k = 1 + random() % 5; k > 0; --k) text += "ab<"[random() % 3];
      if (std::find(data.tokens.begin(), data.tokens.end(), text) != data.tokens.end()) continue;
      constexpr TokenType kTypes[] = {TokenType::kControl, TokenType::kUserDefined, TokenType::kUnused,
                                      TokenType::kNormal};
      test::add_token(data, text, kTypes[random() % 4]);
    }
    std::string text;
    for (size_t n = random() % 30; n > 0; --n) text += "ab<c"[random() % 4];
    for (const bool parse : {false, true}) ASSERT_EQ(find(data, text, parse), slow_find(data, text, parse)) << text;
  }
}

TEST(SpecialTokens, LongerTokenWinsThoughAnotherBeginsBefore) {
  VocabularyData data;
  test::add_token(data, "ab", TokenType::kUserDefined);
  test::add_token(data, "bcd", TokenType::kUserDefined);
  EXPECT_EQ(find(data, "abcd", false), (Found{{1, 1}}));
  EXPECT_EQ(find(data, "abc", false), (Found{{0, 0}}));
}

TEST(SpecialTokens, UserTextCannotMakeControlTokens) {
  VocabularyData data = test::byte_vocabulary({});
  const int32_t start = test::add_token(data, "<|im_start|>", TokenType::kControl);
  const int32_t think = test::add_token(data, "<think>", TokenType::kUserDefined);
  test::add_token(data, "[PAD]", TokenType::kUnused);
  const Tokenizer t(std::move(data));
  EXPECT_EQ(t.encode("<|im_start|>", true), (Ids{start}));
  EXPECT_EQ(t.encode("<|im_start|>", false).size(), 12u);
  EXPECT_EQ(t.encode("<think>", false), (Ids{think})) << "user-defined tokens match in any text";
  EXPECT_EQ(t.encode("[PAD]", true).size(), 5u) << "unused tokens never match";
}

TEST(SpecialTokens, EmptyTextOfATokenMatchesNowhere) {
  VocabularyData data;
  test::add_token(data, "", TokenType::kControl);
  EXPECT_EQ(find(data, "ab", true), Found{});
}

TEST(SpecialTokens, TextThatIsNoWholeCharactersMatchesInsideOfNone) {
  VocabularyData data;
  test::add_token(data, "\x96", TokenType::kControl);
  EXPECT_EQ(find(data, "\xE2\x81\x96", true), Found{}) << "the last byte of a character of three";
}

}  // namespace
}  // namespace sluice::chat
