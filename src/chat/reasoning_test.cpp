#include "chat/reasoning.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

struct Parts {
  std::string reasoning, content;
  bool operator==(const Parts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Parts& parts) {
  return out << "reasoning [" << parts.reasoning << "] content [" << parts.content << "]";
}

Parts split(bool inside, const std::vector<std::string>& pieces) {
  ReasoningSplitter splitter(inside);
  Parts out;
  const auto take = [&](const OutputDelta& delta) {
    out.reasoning += delta.reasoning;
    out.content += delta.content;
  };
  for (const std::string& piece : pieces) take(splitter.feed(piece));
  take(splitter.finish());
  return out;
}

// The same, straight from the rules, on the whole output.
Parts split_whole(bool inside, std::string text) {
  const std::string space = " \t\r\n\f\v";
  if (!inside) {
    const size_t first = text.find_first_not_of(space);
    if (first == std::string::npos || text.compare(first, 7, "<think>") != 0) return {"", text};
    text = text.substr(first + 7);
  }
  const size_t close = text.find("</think>");
  std::string reasoning = text.substr(0, close);
  std::string content = close == std::string::npos ? "" : text.substr(close + 8);
  reasoning.erase(0, std::min(reasoning.find_first_not_of(space), reasoning.size()));
  reasoning.erase(reasoning.find_last_not_of(space) + 1);
  content.erase(0, std::min(content.find_first_not_of("\r\n"), content.size()));
  return {reasoning, content};
}

const std::vector<std::string> kOutputs = {
    "",
    "\n",
    "hm",
    "Let me see.\nYes.\n</think>\n\nThe answer is 4.\n",
    "\n\n  a \n b  \n\n</think>\n\n\n  indented",
    "</think>\n\nno thoughts",
    "\n</think>\n\n",
    "never ends \n ",
    "a </thin k> </think</think> b </think> c <think> d",
    "<think>\nx\n</think>\n\ny",
    " \n<think>x</think>y",
    "<thin",
    "<thinking>no block</thinking>",
    "plain text with < and </ and </think> in it",
    "h\xC3\xA9llo \xE4\xBD\xA0</think>\xF0\x9F\x98\x80 end",
    "  content with space in front",
    "a\n</think>\r\n\r\nb",
};

TEST(ReasoningSplitter, PartsWhatTheModelWrites) {
  EXPECT_EQ(split(true, {kOutputs[3]}), (Parts{"Let me see.\nYes.", "The answer is 4.\n"}));
  EXPECT_EQ(split(false, {kOutputs[3]}), (Parts{"", kOutputs[3]}));
  EXPECT_EQ(split(true, {"never ends \n "}), (Parts{"never ends", ""}));
  EXPECT_EQ(split(false, {"<think>\nx\n</think>\n\ny"}), (Parts{"x", "y"}));
  EXPECT_EQ(split(true, {"a</think> b </think> c"}), (Parts{"a", " b </think> c"}));
  EXPECT_EQ(split(false, {"<thin"}), (Parts{"", "<thin"}));
}

TEST(ReasoningSplitter, AnyCutGivesTheSameParts) {
  for (const std::string& text : kOutputs) {
    for (const bool inside : {false, true}) {
      const Parts expected = split_whole(inside, text);
      EXPECT_EQ(split(inside, {text}), expected) << text;
      for (size_t first = 0; first <= text.size(); ++first) {
        for (size_t second = first; second <= text.size(); ++second) {
          const std::vector<std::string> pieces = {text.substr(0, first), text.substr(first, second - first),
                                                   text.substr(second)};
          ASSERT_EQ(split(inside, pieces), expected) << text << " cut at " << first << " and " << second;
        }
      }
      std::vector<std::string> bytes;
      for (const char c : text) bytes.emplace_back(1, c);
      EXPECT_EQ(split(inside, bytes), expected) << text;
    }
  }
}

TEST(ReasoningSplitter, HoldsBackOnlyWhatIsUndecided) {
  ReasoningSplitter splitter(true);
  EXPECT_EQ(splitter.feed("one two").reasoning, "one two");
  EXPECT_EQ(splitter.feed(" three <").reasoning, " three");
  EXPECT_EQ(splitter.feed("4").reasoning, " <4");
  EXPECT_TRUE(splitter.in_reasoning());
  EXPECT_EQ(splitter.feed("\n</think>\n").reasoning, "");
  EXPECT_FALSE(splitter.in_reasoning());
  EXPECT_EQ(splitter.feed("\nanswer").content, "answer");
  EXPECT_EQ(splitter.feed("\n").content, "\n");
}

TEST(ReasoningSplitter, KnowsPromptsThatOpenTheBlock) {
  EXPECT_TRUE(prompt_opens_reasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(prompt_opens_reasoning("<think>"));
  EXPECT_FALSE(prompt_opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_opens_reasoning("<|im_start|>assistant\n"));
  EXPECT_FALSE(prompt_opens_reasoning(" \n"));
}

}  // namespace
}  // namespace sluice
