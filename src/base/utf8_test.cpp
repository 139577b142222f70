#include "base/utf8.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    utf8::append(text, c);
    const utf8::Decoded d = utf8::decode(text);
    ASSERT_EQ(d.code_point, c);
    ASSERT_EQ(d.length, text.size());
    ASSERT_EQ(d.status, utf8::Status::kValid);
  }
}

TEST(Utf8, MaximalInvalidPartsBecomeOneReplacementEach) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(utf8::sanitize("a\x80z"), "a" + r + "z");
  EXPECT_EQ(utf8::sanitize("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(utf8::sanitize("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(utf8::sanitize("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(utf8::sanitize("\xE2\x82"
                           "A"),
            r + "A");                            // truncated in the middle
  EXPECT_EQ(utf8::sanitize("\xF0\x9F\x98"), r);  // truncated at the end
  EXPECT_EQ(utf8::decode("\xF0\x9F\x98").status, utf8::Status::kIncomplete);
  EXPECT_FALSE(utf8::is_valid("\xFF"));
  EXPECT_TRUE(utf8::is_valid("\xE2\x82\xAC"));
}

}  // namespace
}  // namespace sluice
