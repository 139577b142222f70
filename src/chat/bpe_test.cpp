#include "chat/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "chat/small_vocabulary.h"
#include "chat/tokenizer.h"

namespace sluice::chat {
namespace {

using Ids = std::vector<int32_t>;
using test::byte_vocabulary;
using test::RawMerge;

// The definition: look at all pairs, merge the one of lowest rank, leftmost among equals; again until there is none.
Ids slow_merge(const std::map<std::pair<int32_t, int32_t>, Merge>& merges, Ids symbols) {
  for (;;) {
    const Merge* best = nullptr;
    size_t where = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges.find({symbols[i], symbols[i + 1]});
      if (found != merges.end() && (!best || found->second.rank < best->rank)) best = &found->second, where = i;
    }
    if (!best) return symbols;
    symbols[where] = best->symbol;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(PairMerger, GivesWhatTheDefinitionGivesOnRandomTables) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    const size_t count = 1 + random() % 30;
    const bool equal_ranks = round % 3 == 0;  // SentencePiece can have these
    MergeTable table(count);
    std::map<std::pair<int32_t, int32_t>, Merge> merges;
    for (size_t i = 0; i < count; ++i) {
      const auto symbol = [&] { return static_cast<int32_t>(random() % 10) - 2; };
      const int32_t left = symbol(), right = symbol();
      const Merge merge{static_cast<uint32_t>(equal_ranks ? random() % 4 : random() % 1000), symbol()};
      EXPECT_EQ(table.add(left, right, merge), merges.emplace(std::pair(left, right), merge).second);
    }
    PairMerger merger(table);
    for (int word = 0; word < 4; ++word) {
      Ids symbols;
      for (size_t n = random() % 40; n > 0; --n) symbols.push_back(static_cast<int32_t>(random() % 4) - 1);
      const Ids wanted = slow_merge(merges, symbols);
      merger.merge(symbols);
      ASSERT_EQ(symbols, wanted) << "round " << round;
    }
  }
}

TEST(Bpe, LowerRankMergesFirstAndLeftmostAmongEquals) {
  const Tokenizer t(byte_vocabulary({{"b", "c"}, {"a", "b"}, {"a", "a"}}));
  EXPECT_EQ(t.encode("abc", false), (Ids{'a', 256}));
  EXPECT_EQ(t.encode("aaa", false), (Ids{258, 'a'}));
}

TEST(Bpe, MissingByteVanishesAndNothingMergesAcrossIt) {
  VocabularyData data = byte_vocabulary({{"a", "b"}});
  data.tokens['x'] = "[x]";
  const Tokenizer t(std::move(data));
  EXPECT_EQ(t.encode("axb", false), (Ids{'a', 'b'}));
  EXPECT_EQ(t.encode("ab", false), (Ids{256}));
}

// A token that no merge makes: Qwen has 201 of them.
TEST(Bpe, WholePreTokenIsLookedUpOnlyForLlama3) {
  for (const bool llama : {false, true}) {
    VocabularyData data = byte_vocabulary({}, llama ? "llama-bpe" : "qwen2");
    const int32_t word = test::add_token(data, to_byte_alphabet(" word"), TokenType::kNormal);
    test::add_token(data, to_byte_alphabet(" seen"), TokenType::kUnused);
    test::add_token(data, to_byte_alphabet(" ctrl"), TokenType::kControl);
    const Tokenizer t(std::move(data));
    EXPECT_EQ(t.encode(" word", false), llama ? Ids{word} : (Ids{' ', 'w', 'o', 'r', 'd'}));
    EXPECT_EQ(t.encode(" seen", false).size(), 5u) << "unused tokens never match";
    EXPECT_EQ(t.encode(" ctrl", false).size(), 5u) << "text can't make control tokens";
  }
}

TEST(Bpe, MegabyteWordsOfOneCharacterAreEncoded) {
  // 20 doublings of each: words merge to the end. A quadratic step anywhere would not come back.
  for (const std::string unit : {"a", " ", "<", "\n", "'", "\xE5\xA5\xBD", "\xCC\x81"}) {
    std::vector<RawMerge> merges;
    for (size_t i = 1; i < unit.size(); ++i) merges.push_back({unit.substr(0, i), unit.substr(i, 1)});
    for (std::string piece = unit; piece.size() < 4096; piece += piece) merges.push_back({piece, piece});
    VocabularyData data = byte_vocabulary(merges, "qwen35");
    for (const char* special : {"<|im_start|>", "<|im_end|>", "<think>", "</think>"}) {
      test::add_token(data, special, TokenType::kUserDefined);
    }
    const Tokenizer t(std::move(data));
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const Ids ids = t.encode(text, true);
    EXPECT_LT(ids.size(), 2000u);
    EXPECT_TRUE(t.decode(ids, false) == text) << unit;  // too long to print
  }
}

void expect_refused(VocabularyData data, const std::string& part) {
  try {
    const Tokenizer t(std::move(data));
    FAIL() << "accepted; wanted an error with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Bpe, BadMergesAreRefusedByIndexAndText) {
  const auto with = [](const std::string& merge) {
    VocabularyData data = byte_vocabulary({{"a", "b"}});
    data.merges.push_back(merge);
    return data;
  };
  expect_refused(with("a qq"), "tokenizer.ggml.merges[1]: \"a qq\" needs \"qq\"");
  expect_refused(with("ab c"), "needs \"abc\"");
  expect_refused(with("a b"), "merges[1]: \"a b\" stands there a second time");
  VocabularyData control = with("b c");
  test::add_token(control, "bc", TokenType::kControl);
  expect_refused(control, "plain text must not become a control token");
  for (const char* no_pair : {"", "ab", " ", "a ", " a"}) expect_refused(with(no_pair), "is not two tokens");
}

}  // namespace
}  // namespace sluice::chat
