#include "chat/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/small_vocabulary.h"

namespace sluice::chat {
namespace {

// Bytes around every border of UTF-8, so that random ones are often nearly valid.
constexpr uint8_t kBytes[] = {'A',  0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2,
                              0xDF, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};

TEST(Detokenizer, OutputIsTheRepairedTextHoweverBytesAreCutInTokens) {
  VocabularyData data = test::byte_vocabulary({});
  const int32_t control = test::add_token(data, "<|x|>", TokenType::kControl);
  const Tokenizer t(std::move(data));
  Detokenizer stream(t);
  std::mt19937 random(11);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes, out;
    for (size_t n = random() % 8; n > 0; --n) {
      const uint8_t byte = kBytes[random() % std::size(kBytes)];
      bytes += static_cast<char>(byte);
      const std::string text = stream.push(byte);
      ASSERT_TRUE(utf8::is_valid(text));
      out += text;
      if (random() % 4 == 0) out += stream.push(control);
    }
    out += stream.finish();
    ASSERT_EQ(out, utf8::sanitize(bytes));
  }
}

TEST(Detokenizer, CharacterLeavesWithItsLastByte) {
  const Tokenizer t(test::byte_vocabulary({}));
  Detokenizer stream(t);
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x9A), "");
  EXPECT_EQ(stream.push(0x80), "\U0001F680");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push('A'),
            "\uFFFD"
            "A");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Detokenizer, IdThatIsNoTokenIsRefusedAndChangesNothing) {
  const Tokenizer t(test::byte_vocabulary({}));
  Detokenizer stream(t);
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_THROW(stream.push(256), Error);
  EXPECT_EQ(stream.push(0xA9), "\u00E9");
}

}  // namespace
}  // namespace sluice::chat
