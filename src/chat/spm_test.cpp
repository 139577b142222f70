#include "chat/spm.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "chat/small_vocabulary.h"
#include "chat/tokenizer.h"

namespace sluice::chat {
namespace {

using Ids = std::vector<int32_t>;
using test::sentence_piece_vocabulary;

constexpr int32_t kFirstPiece = 257, kByteZero = 1;
const std::string kMark = "\u2581";

// The definition, on strings: join the neighbours whose joined text has the highest score, leftmost among equals.
Ids slow_encode(const std::vector<test::ScoredPiece>& pieces, const std::string& text) {
  std::map<std::string, int32_t> ids;
  for (size_t i = 0; i < pieces.size(); ++i) ids[pieces[i].text] = static_cast<int32_t>(i);
  std::vector<std::string> symbols = {kMark};
  for (const char c : text) symbols.push_back(c == ' ' ? kMark : std::string(1, c));
  for (;;) {
    size_t best = symbols.size();
    float score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ids.find(symbols[i] + symbols[i + 1]);
      if (found == ids.end()) continue;
      const float its = pieces[static_cast<size_t>(found->second)].score;
      if (best == symbols.size() || its > score) best = i, score = its;
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids out;
  for (const std::string& symbol : symbols) {
    if (ids.contains(symbol)) {
      out.push_back(kFirstPiece + ids[symbol]);
    } else {
      for (const char c : symbol) out.push_back(kByteZero + static_cast<uint8_t>(c));
    }
  }
  return out;
}

TEST(SentencePiece, GivesWhatTheDefinitionGivesOnRandomVocabularies) {
  std::mt19937 random(3);
  for (int round = 0; round < 1500; ++round) {
    std::map<std::string, float> chosen = {{kMark, -1.0f}};  // without it a space becomes the bytes of U+2581
    for (int n = 0; n < 14; ++n) {
      std::string piece;
      for (size_t k = 1 + random() % 4; k > 0; --k) {
        const char c = "abc "[random() % 4];
        piece += c == ' ' ? kMark : std::string(1, c);
      }
      chosen[piece] = static_cast<float>(random() % 8);  // few values: equal scores are common
    }
    std::vector<test::ScoredPiece> pieces;
    for (const auto& [text, score] : chosen) pieces.push_back({text, score});
    const Tokenizer t(sentence_piece_vocabulary(pieces));
    for (int k = 0; k < 4; ++k) {
      std::string text;
      for (size_t n = 1 + random() % 16; n > 0; --n) text += "abcd "[random() % 5];
      ASSERT_EQ(t.encode(text, false), slow_encode(pieces, text)) << text;
      ASSERT_EQ(t.decode(t.encode(text, false), true), text);
    }
  }
}

TEST(SentencePiece, PartsOfATokenNeedNotBeTokens) {
  const Tokenizer t(sentence_piece_vocabulary({{"ab", -1}, {"abc", -2}}));
  EXPECT_EQ(t.encode("abc", false), (Ids{kByteZero + 0xE2, kByteZero + 0x96, kByteZero + 0x81, kFirstPiece + 1}));
}

TEST(SentencePiece, SpacePrefixStandsBeforeEachStretchOfText) {
  VocabularyData data = sentence_piece_vocabulary({{kMark + "a", -1}, {"a", -2}, {kMark, -3}});
  const int32_t end = test::add_token(data, "</s>", TokenType::kControl);
  VocabularyData plain = data;
  plain.add_space_prefix = false;
  const Tokenizer t(std::move(data)), without(std::move(plain));
  EXPECT_EQ(t.encode("a</s>a", true), (Ids{kFirstPiece, end, kFirstPiece}));
  EXPECT_EQ(t.encode("", true), Ids{});
  EXPECT_EQ(without.encode("a</s>a", true), (Ids{kFirstPiece + 1, end, kFirstPiece + 1}));
  EXPECT_EQ(t.decode(Ids{kFirstPiece, end, kFirstPiece}, true), "a a");
  EXPECT_EQ(without.decode(Ids{kFirstPiece}, true), " a");
}

TEST(SentencePiece, UnknownTokenStandsForBytesWithoutToken) {
  VocabularyData data;
  data.model = "llama";
  data.tokens = {"<unk>", "a", kMark};
  data.types = {TokenType::kUnknown, TokenType::kNormal, TokenType::kNormal};
  data.scores = {0, 0, 0};
  data.add_bos = false;
  VocabularyData no_unknown = data;
  data.unknown = 0;
  EXPECT_EQ(Tokenizer(std::move(data)).encode("ab", false), (Ids{2, 1, 0}));
  EXPECT_THROW(Tokenizer(std::move(no_unknown)), Error);
}

TEST(SentencePiece, ScoresMustBeThereAndFinite) {
  VocabularyData missing = sentence_piece_vocabulary({{"a", 0}});
  missing.scores.clear();
  EXPECT_THROW(Tokenizer(std::move(missing)), Error);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    EXPECT_THROW(Tokenizer(sentence_piece_vocabulary({{"a", bad}})), Error);
  }
}

TEST(SentencePiece, MegabyteTextsAreEncoded) {
  std::vector<test::ScoredPiece> pieces = {{kMark, -100}};
  float score = 0;
  for (std::string run = "aa"; run.size() <= 64; run += run) pieces.push_back({run, score -= 1});
  const Tokenizer t(sentence_piece_vocabulary(pieces));
  for (const char c : {'a', ' ', 'z'}) {
    const std::string text(1'000'000, c);
    EXPECT_TRUE(t.decode(t.encode(text, false), true) == text) << c;  // too long to print
  }
}

}  // namespace
}  // namespace sluice::chat
