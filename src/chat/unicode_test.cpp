#include "chat/unicode.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/reference.h"

namespace sluice::chat {
namespace {

TEST(Unicode, RangesAreAscendingAndApart) {
  char32_t next_free = 0;
  for (const CodePointRange& range : code_point_ranges()) {
    EXPECT_GE(range.first, next_free);
    EXPECT_LE(range.first, range.last);
    next_free = range.last + 1;
  }
}

TEST(Unicode, BordersOfRangesBelongToThem) {
  using enum CodePointClass;
  EXPECT_EQ(classify('@'), kOther);
  EXPECT_EQ(classify('A'), kLetter);
  EXPECT_EQ(classify('Z'), kLetter);
  EXPECT_EQ(classify('['), kOther);
  EXPECT_EQ(classify('\t'), kSpace);
  EXPECT_EQ(classify('\r'), kSpace);
  EXPECT_EQ(classify(0x0E), kOther);
  EXPECT_EQ(classify(0x1C), kOther) << "the separators FS to US are no white space";
  EXPECT_EQ(classify(0x85), kSpace);
  EXPECT_EQ(classify(0xBD), kNumber) << "one half";
  EXPECT_EQ(classify(0x300), kMark);
  EXPECT_EQ(classify(0x36F), kMark);
  EXPECT_EQ(classify(0x370), kLetter);
  EXPECT_EQ(classify(0x180E), kOther) << "no white space since Unicode 6.3";
  EXPECT_EQ(classify(0x200B), kOther);
  EXPECT_EQ(classify(0x4E00), kLetter);
  EXPECT_EQ(classify(0xE000), kOther) << "private use";
  EXPECT_EQ(classify(0x10FFFF), kOther);
  EXPECT_EQ(classify(0x110000), kOther);
}

TEST(Unicode, EveryCodePointHasTheReferencesClass) {
  const auto root = test::reference_root();
  if (!root) GTEST_SKIP() << test::kNoReference;
  const auto classes = nlohmann::json::parse(read_text_file(*root + "/tokenizers/codepoint_classes.json"));
  std::vector<CodePointClass> wanted(0x110000, CodePointClass::kOther);
  const auto fill = [&](const char* key, CodePointClass kind) {
    for (const auto& range : classes.at(key)) {
      for (size_t c = range.at(0); c <= range.at(1); ++c) wanted[c] = kind;
    }
  };
  fill("L", CodePointClass::kLetter), fill("M", CodePointClass::kMark);
  fill("N", CodePointClass::kNumber), fill("space", CodePointClass::kSpace);
  size_t wrong = 0;
  for (char32_t c = 0; c < wanted.size(); ++c) wrong += classify(c) != wanted[c];
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace sluice::chat
