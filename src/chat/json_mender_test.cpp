#include "chat/json_mender.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

std::string mend(std::string_view text) {
  JsonMender mender;
  std::string out;
  mender.feed(text, out);
  mender.close(out);
  return out;
}

TEST(JsonMender, LeavesJsonAsItIs) {
  for (const char* text : {R"({})", R"({"a": 1})", R"({"a": [1, 2.5, "x\n\u00e9", {"b": null}], "c": true})"}) {
    JsonMender mender;
    std::string out;
    EXPECT_EQ(mender.feed(std::string(text) + " rest", out), std::string_view(text).size());
    EXPECT_TRUE(mender.done());
    EXPECT_EQ(out, text);
  }
}

TEST(JsonMender, MendsWhatModelsWrite) {
  EXPECT_EQ(mend("{'a': 1}"), R"({"'a'": 1})");
  EXPECT_EQ(mend("{a:True,b:[False,None,],}"), R"({"a": true, "b": [false, null]})");
  EXPECT_EQ(mend("{\"a\":\"x\ny\\q\\'\"}"), R"({"a": "x\ny\\q'"})");
  EXPECT_EQ(mend(R"({"a":"\ud83d\ude00 \ud83dx \ude00 \ud83d\ud83d\ude00"})"),
            R"({"a": "\ud83d\ude00 \ufffdx \ufffd \ufffd\ud83d\ude00"})");
  EXPECT_EQ(mend("{\"a\": 01, \"b\": 99999999999999999999}"), R"({"a": "01", "b": "99999999999999999999"})");
}

TEST(JsonMender, IsBrokenByWhatFitsNowhere) {
  for (const char* text : {"1", "[", "{]", "{:", "{\"a\" 1", "{\"a\": ,", "{\"a\": 1 2", "{\"a\": [1}", "{[", "{,"}) {
    JsonMender mender;
    std::string out;
    const size_t taken = mender.feed(text, out);
    EXPECT_TRUE(mender.broken()) << text;
    EXPECT_EQ(taken, std::string_view(text).size() - 1) << text;
    mender.close(out);
    EXPECT_TRUE(nlohmann::json::parse(out, nullptr, false).is_object()) << text << ": " << out;
  }
  std::string deep = "{\"a\": ", out;
  deep.append(JsonMender::kMaxDepth, '[');
  JsonMender mender;
  EXPECT_EQ(mender.feed(deep, out), deep.size() - 1);
  EXPECT_TRUE(mender.broken());
}

TEST(JsonMender, ClosesWhereverItEnds) {
  const std::string text = "{\"a\\n\": [1, {\"b\": \"\\ud83d\\ude00\\\\ x\"}, tru, -1.5], c: {}, \"d\": null, }";
  for (size_t size = 0; size <= text.size(); ++size) {
    const std::string out = mend(text.substr(0, size));
    EXPECT_TRUE(nlohmann::json::parse(out, nullptr, false).is_object()) << text.substr(0, size) << ": " << out;
  }
  EXPECT_EQ(mend("{\"a"), R"({"a": null})");
  EXPECT_EQ(mend("{\"a\": \"x\\u0"), R"({"a": "x\\u0"})");
}

}  // namespace
}  // namespace sluice
