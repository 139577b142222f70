// Messages made fit for templates, and what the memory of answers finds and forgets.
#include "chat/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "chat/jinja/jinja.h"

namespace sluice {
namespace {

using jinja::from_json;

std::string fit(const char* messages) { return jinja::to_json(fit_messages(from_json(messages))); }

TEST(FitMessages, LeavesWhatFits) {
  const char* messages =
      R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": null, )"
      R"("tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "content": "T"}])";
  EXPECT_EQ(fit(messages), messages);
}

TEST(FitMessages, SystemAndDeveloperMessagesAreOneInFront) {
  EXPECT_EQ(fit(R"([{"role": "user", "content": "U"}, {"role": "developer", "content": [{"type": "text", "text": "A"}]},
                    {"role": "system", "content": null}, {"role": "system", "content": "B"}])"),
            R"([{"role": "system", "content": "A\n\nB"}, {"role": "user", "content": "U"}])");
  EXPECT_EQ(fit(R"([{"role": "developer", "content": "D"}, {"role": "user", "content": "U"}])"),
            R"([{"role": "system", "content": "D"}, {"role": "user", "content": "U"}])");
}

TEST(FitMessages, OldNamesGetTheirNewOnes) {
  EXPECT_EQ(fit(R"([{"role": "function", "name": "f", "content": "R"}, {"role": "assistant", "reasoning": "H"}])"),
            R"([{"role": "tool", "name": "f", "content": "R"}, {"role": "assistant", "reasoning_content": "H"}])");
  EXPECT_EQ(fit(R"([{"role": "assistant", "reasoning": "H", "reasoning_content": "I"}])"),
            R"([{"role": "assistant", "reasoning": "H", "reasoning_content": "I"}])");
}

TEST(FitMessages, NamesWhatItCannotRead) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}])", "messages[1].role: \"robot\""},
      {R"([{"content": "a"}])", "messages[0].role: missing"},
      {R"([{"role": 1}])", "messages[0].role: missing"},
      {R"([{"role": "user", "content": 1}])", "messages[0].content: neither"},
      {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}])",
       "messages[0].content[1]: a part of type \"image_url\""},
  };
  for (const auto& [messages, expected] : cases) {
    try {
      fit_messages(from_json(messages));
      FAIL() << messages;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_THAT(error.what(), ::testing::StartsWith(expected));
    }
  }
}

RememberedAnswer answer(int32_t token) { return {0, "open", {token}}; }

// The first tokens of what is found, which tell the answers apart.
std::vector<int32_t> found(const AnswerMemory& memory, const char* message) {
  std::vector<int32_t> out;
  for (const RememberedAnswer* one : memory.find(from_json(message))) out.push_back(one->tokens.at(0));
  return out;
}
using Found = std::vector<int32_t>;

TEST(AnswerMemory, FindsAnswersByWhatIsSentBack) {
  AnswerMemory memory(100, 1 << 20);
  memory.remember(answer(1), {"why", "Hello", {}});
  memory.remember(answer(2), {"", "", {{"f", R"({"a": 1, "b": "x"})"}}});
  EXPECT_EQ(found(memory, R"({"content": "Hello"})"), Found{1});
  EXPECT_EQ(found(memory, R"({"content": " Hello\n", "reasoning_content": "why\n"})"), Found{1});
  EXPECT_EQ(found(memory, R"({"content": "Hello", "reasoning_content": "because"})"), Found{});
  EXPECT_EQ(found(memory, R"({"content": "Hello!"})"), Found{});
  EXPECT_EQ(found(memory, R"({"content": "Hello", "tool_calls": [{"function": {"name": "f"}}]})"), Found{});
  const char* call =
      R"({"content": null, "tool_calls": [{"id": "7", "function": {"name": "f", "arguments": {"a": 1, "b": "x"}}}]})";
  EXPECT_EQ(found(memory, call), Found{2});
  EXPECT_EQ(found(memory, R"({"tool_calls": [{"name": "f", "arguments": {"a": 2, "b": "x"}}]})"), Found{});
  EXPECT_EQ(found(memory, R"({"tool_calls": [{"name": "g", "arguments": {"a": 1, "b": "x"}}]})"), Found{});
  EXPECT_EQ(found(memory, R"({"content": null})"), Found{});
}

TEST(AnswerMemory, GivesTheLastUsedOfSeveralFirst) {
  AnswerMemory memory(100, 1 << 20);
  memory.remember(answer(1), {"one", "Done.", {}});
  memory.remember(answer(2), {"two", "Done.", {}});
  EXPECT_EQ(found(memory, R"({"content": "Done."})"), (Found{2, 1}));
  EXPECT_EQ(found(memory, R"({"content": "Done.", "reasoning_content": "one"})"), Found{1});
  memory.use(*memory.find(from_json(R"({"content": "Done."})"))[1]);
  EXPECT_EQ(found(memory, R"({"content": "Done."})"), (Found{1, 2}));
  memory.remember(answer(2), {"two", "Done.", {}});
  EXPECT_EQ(memory.size(), 2u) << "the same answer again";
}

TEST(AnswerMemory, ForgetsWhatWasNotUsedForLongest) {
  AnswerMemory memory(2, 1 << 20);
  for (const int32_t token : {1, 2}) memory.remember(answer(token), {"", std::to_string(token), {}});
  memory.use(*memory.find(from_json(R"({"content": "1"})"))[0]);
  memory.remember(answer(3), {"", "3", {}});
  EXPECT_EQ(found(memory, R"({"content": "1"})"), Found{1});
  EXPECT_EQ(found(memory, R"({"content": "2"})"), Found{});
  EXPECT_EQ(memory.size(), 2u);
}

TEST(AnswerMemory, StaysWithinItsBytes) {
  AnswerMemory memory(1000, 10'000);
  for (int32_t token = 0; token < 100; ++token) {
    memory.remember(answer(token), {"", std::string(1000, static_cast<char>('A' + token % 26)), {}});
    EXPECT_LE(memory.bytes(), 10'000u);
  }
  EXPECT_GT(memory.size(), 5u);
  const size_t before = memory.size();
  memory.remember({0, "open", Found(5000)}, {"", "large", {}});
  EXPECT_EQ(memory.size(), before) << "too large to be kept, and no reason to forget others";
}

}  // namespace
}  // namespace sluice
