#include "chat/vocabulary.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "chat/byte_alphabet.h"
#include "chat/small_vocabulary.h"
#include "chat/tokenizer.h"

namespace sluice::chat {
namespace {

using Ids = std::vector<int32_t>;
using test::byte_vocabulary;

void expect_refused(VocabularyData data, const std::string& part, ErrorKind kind = ErrorKind::kFormat) {
  try {
    const Tokenizer t(std::move(data));
    FAIL() << "accepted; wanted an error with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(ByteAlphabet, EveryByteHasItsOwnPrintableCharacter) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(all)), all);
  EXPECT_EQ(to_byte_alphabet(" \n\x7F\xAD"
                             "A"),
            "\u0120\u010A\u0121\u0143A");
  EXPECT_EQ(from_byte_alphabet("a b"), std::nullopt) << "a space is not of the alphabet";
  EXPECT_EQ(from_byte_alphabet("\u0144"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("\xFF"), std::nullopt);
}

TEST(Vocabulary, ContradictingListsAreRefused) {
  VocabularyData data = byte_vocabulary({});
  data.tokens.clear();
  expect_refused(data, "tokenizer.ggml.tokens: empty");
  data = byte_vocabulary({});
  data.types.pop_back();
  expect_refused(data, "tokenizer.ggml.token_type: 255 entries, but tokenizer.ggml.tokens has 256");
  data = byte_vocabulary({});
  data.scores = {1, 2};
  expect_refused(data, "tokenizer.ggml.scores: 2 entries");
}

TEST(Vocabulary, BadTypesAreRefused) {
  for (const int bad : {0, 7, 200}) {
    VocabularyData data = byte_vocabulary({});
    data.types[3] = static_cast<TokenType>(bad);
    expect_refused(data, "tokenizer.ggml.token_type[3]: " + std::to_string(bad));
  }
  for (const char* bad : {"", "<0x0>", "<0x0G>", "<0x000>", "0x0A", "<0X0A>"}) {
    VocabularyData data = byte_vocabulary({});
    test::add_token(data, bad, TokenType::kByte);
    expect_refused(data, "tokenizer.ggml.tokens[256]");
  }
}

TEST(Vocabulary, TwoTokensOfOneTextAreRefusedUnlessUnused) {
  VocabularyData data = byte_vocabulary({});
  test::add_token(data, "A", TokenType::kNormal);
  expect_refused(data, "tokenizer.ggml.tokens[65] and [256] are both \"A\"");
  data = byte_vocabulary({});
  test::add_token(data, "A", TokenType::kUnused);
  test::add_token(data, "A", TokenType::kUnused);
  EXPECT_EQ(Tokenizer(std::move(data)).find("A"), 65);
}

TEST(Vocabulary, IdsOutOfRangeAreRefused) {
  const auto with = [](std::optional<uint32_t> VocabularyData::*id) {
    VocabularyData data = byte_vocabulary({});
    data.*id = 256;
    return data;
  };
  expect_refused(with(&VocabularyData::bos), "tokenizer.ggml.bos_token_id: 256 is not a token: ids end at 255");
  expect_refused(with(&VocabularyData::eos), "tokenizer.ggml.eos_token_id: 256");
  expect_refused(with(&VocabularyData::eot), "tokenizer.ggml.eot_token_id: 256");
  expect_refused(with(&VocabularyData::padding), "tokenizer.ggml.padding_token_id: 256");
  expect_refused(with(&VocabularyData::unknown), "tokenizer.ggml.unknown_token_id: 256");
}

TEST(Vocabulary, UnknownModelIsRefusedWithTheKnownOnes) {
  VocabularyData data = byte_vocabulary({});
  data.model = "bert";
  expect_refused(data, "tokenizer.ggml.model: \"bert\" is unknown (known: gpt2, llama)", ErrorKind::kUnsupported);
}

TEST(Vocabulary, BosAndEosAreAddedWhereTheFileOrTheFamilySaysSo) {
  VocabularyData data = byte_vocabulary({});
  data.add_bos = true;
  expect_refused(data, "tokenizer.ggml.add_bos_token: true, but tokenizer.ggml.bos_token_id is missing");
  data.bos = 1;
  EXPECT_TRUE(Tokenizer(data).add_bos());
  data.add_bos.reset();
  EXPECT_FALSE(Tokenizer(data).add_bos());
  data.pre = "llama-bpe";
  EXPECT_TRUE(Tokenizer(data).add_bos());
  data.add_bos = false;
  EXPECT_FALSE(Tokenizer(data).add_bos());
  EXPECT_FALSE(Tokenizer(data).add_eos());
  data.add_eos = true;
  expect_refused(data, "tokenizer.ggml.add_eos_token");
}

TEST(Vocabulary, GenerationEndsAtEosEotAndWellKnownTokens) {
  VocabularyData data = byte_vocabulary({});
  const int32_t end = test::add_token(data, "<|im_end|>", TokenType::kControl);
  const int32_t file = test::add_token(data, "<|file_sep|>", TokenType::kControl);
  test::add_token(data, "<|im_start|>", TokenType::kControl);
  data.eos = 7, data.eot = static_cast<uint32_t>(end);
  const Tokenizer t(std::move(data));
  EXPECT_EQ(t.ends_of_generation(), (Ids{7, end, file}));
  EXPECT_TRUE(t.is_end_of_generation(7));
  EXPECT_TRUE(t.is_end_of_generation(file));
  EXPECT_FALSE(t.is_end_of_generation(file + 1));
  EXPECT_FALSE(t.is_end_of_generation(-1));
}

TEST(Tokenizer, IdsThatAreNoTokensAreRefused) {
  const Tokenizer t(byte_vocabulary({}));
  for (const int32_t bad : {-1, 256, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    EXPECT_THROW(t.piece(bad), Error);
    EXPECT_THROW(t.text(bad), Error);
    EXPECT_THROW(t.type(bad), Error);
    EXPECT_THROW(t.decode(Ids{0, bad}, true), Error);
    EXPECT_FALSE(t.contains(bad) || t.is_control(bad) || t.is_unused(bad) || t.is_end_of_generation(bad));
  }
}

TEST(Tokenizer, PieceOfATokenWrittenOutsideTheAlphabetIsItsText) {
  VocabularyData data = byte_vocabulary({});
  const int32_t id = test::add_token(data, "two words", TokenType::kNormal);
  EXPECT_EQ(Tokenizer(std::move(data)).piece(id), "two words");
}

}  // namespace
}  // namespace sluice::chat
