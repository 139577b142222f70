#include "gguf/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "gguf/test_files.h"

namespace sluice::gguf {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Metadata, IntegersOfEveryWidthAreAccepted) {
  Metadata m("M.gguf");
  m.add("u8", uint8_t{255});
  m.add("i8", int8_t{-1});
  m.add("u16", uint16_t{65535});
  m.add("i64", int64_t{1} << 40);
  m.add("u64", ~uint64_t{0});
  EXPECT_EQ(m.get<uint32_t>("u8"), 255U);
  EXPECT_EQ(m.get<int32_t>("i8"), -1);
  EXPECT_EQ(m.get<int64_t>("u16"), 65535);
  EXPECT_EQ(m.get<uint64_t>("i64"), uint64_t{1} << 40);
  EXPECT_EQ(m.get<uint64_t>("u64"), ~uint64_t{0});
  EXPECT_THAT(message_of([&] { m.get<uint32_t>("i8"); }),
              HasSubstr("key i8: is i8 -1, but an integer from 0 to 4294967295"));
  EXPECT_THAT(message_of([&] { m.get<uint32_t>("i64"); }), HasSubstr("is i64 1099511627776, but an integer from 0"));
  EXPECT_THAT(message_of([&] { m.get<int64_t>("u64"); }), HasSubstr("is u64 18446744073709551615"));
}

TEST(Metadata, WrongTypeNamesFileKeyFoundAndWanted) {
  Metadata m("M.gguf");
  m.add("text", std::string("gpt2"));
  m.add("flag", true);
  m.add("one", uint32_t{1});
  m.add("numbers", Array(std::vector<int32_t>{1, -2}));
  EXPECT_THAT(message_of([&] { m.get<uint32_t>("text"); }),
              AllOf(HasSubstr("M.gguf: key text: is str \"gpt2\""), HasSubstr("an integer")));
  EXPECT_THAT(message_of([&] { m.get<std::string>("numbers"); }), HasSubstr("is array of i32 [1, -2], but a string"));
  EXPECT_THAT(message_of([&] { m.get<uint32_t>("flag"); }), HasSubstr("is bool true, but an integer"));
  EXPECT_THAT(message_of([&] { m.get<bool>("one"); }), HasSubstr("is u32 1, but a bool"));
  EXPECT_THAT(message_of([&] { m.get<float>("one"); }), HasSubstr("is u32 1, but a finite float"));
  EXPECT_THAT(message_of([&] { m.get<std::vector<uint32_t>>("numbers"); }),
              HasSubstr("each element an integer from 0"));
  EXPECT_THAT(message_of([&] { m.get<std::vector<int32_t>>("one"); }), HasSubstr("is u32 1, but an array"));
  EXPECT_THAT(message_of([&] { m.find_strings("numbers"); }), HasSubstr("an array of strings"));
}

TEST(Metadata, AbsentKeysAreEmptyWhenSoughtAndErrorsWhenNeeded) {
  const Metadata m("M.gguf");
  EXPECT_EQ(m.find<uint32_t>("a"), std::nullopt);
  EXPECT_EQ(m.find_value("a"), nullptr);
  EXPECT_EQ(m.find_strings("a"), nullptr);
  EXPECT_THAT(message_of([&] { m.get<uint32_t>("a"); }), HasSubstr("M.gguf: key a is missing"));
  EXPECT_THAT(message_of([&] { m.get_strings("a"); }), HasSubstr("M.gguf: key a is missing"));
}

TEST(Metadata, FloatsAreFinite) {
  Metadata m("M.gguf");
  m.add("f32", 0.5F);
  m.add("f64", 0.25);
  m.add("nan", std::numeric_limits<float>::quiet_NaN());
  m.add("large", 1e300);
  EXPECT_EQ(m.get<float>("f32"), 0.5F);
  EXPECT_EQ(m.get<float>("f64"), 0.25F);
  EXPECT_EQ(m.get<double>("f32"), 0.5);
  EXPECT_THAT(message_of([&] { m.get<float>("nan"); }), HasSubstr("is f32 nan, but a finite float"));
  EXPECT_EQ(m.get<double>("large"), 1e300);
  EXPECT_THAT(message_of([&] { m.get<float>("large"); }), HasSubstr("is f64 1e+300, but a finite float"));
}

TEST(Metadata, ArraysConvertElementByElement) {
  Metadata m("M.gguf");
  m.add("i32", Array(std::vector<int32_t>{11, 11, 10, 0}));
  m.add("u64", Array(std::vector<uint64_t>{uint64_t{1} << 40}));
  m.add("bool", Array(std::vector<bool>{true, false}));
  m.add("f32", Array(std::vector<float>{1.5F}));
  m.add("str", Array(std::vector<std::string>{"a", "b"}));
  EXPECT_THAT(m.get<std::vector<uint32_t>>("i32"), ElementsAre(11, 11, 10, 0));
  EXPECT_THAT(m.get<std::vector<int64_t>>("u64"), ElementsAre(int64_t{1} << 40));
  EXPECT_THROW(m.get<std::vector<int32_t>>("u64"), Error);
  EXPECT_THAT(m.get<std::vector<bool>>("bool"), ElementsAre(true, false));
  EXPECT_THAT(m.get<std::vector<float>>("f32"), ElementsAre(1.5F));
  EXPECT_THAT(m.get_strings("str"), ElementsAre("a", "b"));
}

TEST(Metadata, OverridesReplaceInPlaceOrAppend) {
  Metadata m("M.gguf");
  m.add("llama.context_length", uint32_t{8192});
  m.add("general.name", std::string("old"));
  m.apply_override("llama.context_length=int:4096");
  m.apply_override("general.name=str:a=b:c");
  m.apply_override("llama.rope.freq_base=float:1e6");
  m.apply_override("tokenizer.ggml.add_bos_token=bool:true");
  m.apply_override("empty=str:");
  EXPECT_EQ(m.get<uint32_t>("llama.context_length"), 4096U);
  EXPECT_EQ(m.get<std::string>("general.name"), "a=b:c");
  EXPECT_EQ(m.get<float>("llama.rope.freq_base"), 1e6F);
  EXPECT_TRUE(m.get<bool>("tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(m.get<std::string>("empty"), "");
  EXPECT_EQ(m.entries()[0].key, "llama.context_length");
  EXPECT_EQ(m.entries().size(), 5U);
}

TEST(Metadata, OverridesThatMakeNoSenseAreRefused) {
  const auto refusal = [](const char* text) {
    return message_of([text] {
      Metadata m;
      m.apply_override(text);
    });
  };
  EXPECT_THAT(refusal("key"), HasSubstr("write KEY=TYPE:VALUE"));
  EXPECT_THAT(refusal("key:int=4"), HasSubstr("write KEY=TYPE:VALUE"));
  EXPECT_THAT(refusal("=int:4"), HasSubstr("the key is empty"));
  EXPECT_THAT(refusal("key=long:4"), HasSubstr("\"long\" is not one of int, float, bool, str"));
  EXPECT_THAT(refusal("key=int:4.5"), HasSubstr("\"4.5\" is not an integer"));
  EXPECT_THAT(refusal("key=int:"), HasSubstr("\"\" is not an integer"));
  EXPECT_THAT(refusal("key=int:99999999999999999999"), HasSubstr("is not an integer"));
  EXPECT_THAT(refusal("key=float:x"), HasSubstr("\"x\" is not a finite float"));
  EXPECT_THAT(refusal("key=float:inf"), HasSubstr("is not finite"));
  EXPECT_THAT(refusal("key=bool:1"), HasSubstr("a bool is true or false"));
  EXPECT_THAT(refusal("general.alignment=int:64"), HasSubstr("can't be overridden"));
  EXPECT_THAT(refusal("split.count=int:1"), HasSubstr("can't be overridden"));
}

TEST(Value, LongOnesAreShownShortened) {
  EXPECT_EQ(format_value(Array(std::vector<std::string>(248320, "token")), 20),
            "[\"token\", \"token\", \"token\", ... 248320]");
  EXPECT_EQ(format_value(std::string(1000, 'x'), 10), "\"xxxxxxxxxx...\"");
  EXPECT_EQ(format_value(std::string("\x1b[2J\xFF")), "\"\\x1b[2J\xEF\xBF\xBD\"");
  EXPECT_EQ(format_value(Array(std::vector<bool>{true, false})), "[true, false]");
}

}  // namespace
}  // namespace sluice::gguf
