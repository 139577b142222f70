// The tokenizers against the golden vectors of the reference tokenizers (Hugging Face tokenizers, SentencePiece,
// confirmed by llama.cpp): the whole set when SLUICE_REFERENCE names it, the selection in tests/data always.
#include "chat/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/detokenizer.h"
#include "chat/tokenizer_vectors.h"
#include "support/reference.h"

namespace sluice::chat {
namespace {

struct Set {
  const char* vectors;
  const char* vocabulary;
  bool full;
};

std::ostream& operator<<(std::ostream& out, const Set& set) {
  return out << set.vectors << (set.full ? " (full)" : " (selection)");
}

std::string full_path(const std::string& file) { return *test::reference_root() + "/tokenizers/" + file; }

class GoldenVectors : public testing::TestWithParam<Set> {
 protected:
  void SetUp() override {
    const Set& set = GetParam();
    if (set.full && !test::reference_root()) GTEST_SKIP() << test::kNoReference;
    VocabularyData data = set.full ? test::read_gguf_vocabulary(full_path(std::string(set.vocabulary) + "-vocab.gguf"))
                                   : test::selected_vocabulary(set.vectors);
    if (std::string_view(set.vectors).ends_with("pre-qwen2")) data.pre = "qwen2";
    tokenizer_ = std::make_unique<Tokenizer>(std::move(data));
    vectors_ = test::read_vectors(set.full ? full_path(std::string(set.vectors) + ".json")
                                           : test::selection_path(set.vectors));
    ASSERT_FALSE(vectors_.encode.empty());
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  test::TokenizerVectors vectors_;
};

TEST_P(GoldenVectors, EncodeGivesTheReferencesIds) {
  for (const auto& c : vectors_.encode) {
    EXPECT_EQ(tokenizer_->encode(c.text, true), c.ids) << c.name;
    EXPECT_EQ(tokenizer_->encode(c.text, false), c.ids_no_special) << c.name << ", control tokens as plain text";
  }
}

TEST_P(GoldenVectors, DecodeOfEncodeIsTheText) {
  for (const auto& c : vectors_.encode) {
    if (c.lost) continue;
    EXPECT_EQ(tokenizer_->decode(c.ids, false), c.decoded.value_or(c.text)) << c.name;
  }
}

TEST_P(GoldenVectors, InvalidUtf8IsReadAsReplacementCharacters) {
  for (const auto& c : vectors_.invalid) EXPECT_EQ(tokenizer_->encode(c.text, true), c.ids) << c.name;
}

TEST_P(GoldenVectors, DecodeGivesTheReferencesBytes) {
  for (const auto& c : vectors_.decode) {
    const auto decoded = [&](bool skip_control) {
      const std::string bytes = tokenizer_->decode(c.ids, skip_control);
      return c.streamed ? bytes : utf8::sanitize(bytes);  // without a stream the case holds text
    };
    if (c.streamed) {
      EXPECT_EQ(decoded(false), c.bytes) << c.name;
    }
    EXPECT_EQ(decoded(true), c.bytes_without_control) << c.name;
  }
}

TEST_P(GoldenVectors, StreamEmitsEachCharacterAsSoonAsItIsWhole) {
  for (const auto& c : vectors_.decode) {
    if (!c.streamed) continue;
    Detokenizer stream(*tokenizer_);
    ASSERT_EQ(c.ids.size(), c.stream.size()) << c.name;
    for (size_t i = 0; i < c.ids.size(); ++i)
      EXPECT_EQ(stream.push(c.ids[i]), c.stream[i]) << c.name << ", token " << i;
    EXPECT_EQ(stream.finish(), c.stream_end) << c.name;
  }
}

constexpr bool kFull = true, kSelection = false;
constexpr Set kSets[] = {
    {"qwen35", "qwen35", kFull},
    {"qwen35-with-pre-qwen2", "qwen35", kFull},
    {"smollm2", "smollm2", kFull},
    {"llama-bpe", "llama-bpe", kFull},
    {"mistral-spm", "mistral-spm", kFull},
    {"qwen35", "qwen35", kSelection},
    {"qwen35-with-pre-qwen2", "qwen35", kSelection},
    {"smollm2", "smollm2", kSelection},
    {"llama-bpe", "llama-bpe", kSelection},
    {"mistral-spm", "mistral-spm", kSelection},
};

std::string name_of(const testing::TestParamInfo<Set>& info) {
  std::string name = std::string(info.param.vectors) + (info.param.full ? "_full" : "_selection");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenVectors, testing::ValuesIn(kSets), name_of);

// A short text for each of 208,896 code points: any wrong character class or byte merge changes a hash.
TEST(CodePointSweep, EveryCodePointGivesTheReferencesIds) {
  if (!test::reference_root()) GTEST_SKIP() << test::kNoReference;
  const Tokenizer tokenizer(test::read_gguf_vocabulary(full_path("qwen35-vocab.gguf")));
  for (const auto& block : test::read_sweep(full_path("codepoint_sweep.json"))) {
    std::string ids;  // little-endian u32
    for (uint32_t c = block.first; c < block.first + 256; ++c) {
      std::string it;
      utf8::append(it, c);
      for (const int32_t id : tokenizer.encode("a" + it + it + "b 1" + it + " " + it + "\n", true)) {
        for (int shift = 0; shift < 32; shift += 8) ids += static_cast<char>(id >> shift);
      }
    }
    EXPECT_EQ(test::sha256(ids), block.sha256) << "code points from " << block.first;
  }
}

}  // namespace
}  // namespace sluice::chat
