#include "chat/template.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "support/reference.h"

namespace sluice {
namespace {

using jinja::from_json;

ChatTemplate qwen() {
  return ChatTemplate(read_text_file(test::test_data_dir() + "/templates/real/Qwen-Qwen3.6-35B-A3B.jinja"), "",
                      "<|im_end|>");
}

std::string render(const ChatTemplate& chat, const std::string& messages, std::optional<bool> thinking = {}) {
  ChatPrompt prompt;
  prompt.messages = from_json(messages);
  prompt.enable_thinking = thinking;
  return chat.render(prompt);
}

TEST(ChatTemplate, RendersAPromptThatAsksForAnAnswer) {
  const std::string user = R"([{"role": "user", "content": " Hi "}])";
  EXPECT_EQ(render(qwen(), user), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(render(qwen(), user, false),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  ChatPrompt prompt;
  prompt.messages = from_json(user);
  prompt.add_generation_prompt = false;
  EXPECT_EQ(qwen().render(prompt), "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatTemplate, TextPartsAreTheSameAsText) {
  const ChatTemplate strict("{% for m in messages %}{{ m.role + ':' + m.content }};{% endfor %}", "", "");
  EXPECT_EQ(render(strict,
                   R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])"),
            "user:ab;");
  const ChatTemplate parts("{{ messages[0].content is string }}{{ messages[0].content | length }}", "", "");
  EXPECT_EQ(render(parts, R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}])"),
            "False2");
}

TEST(ChatTemplate, ArgumentsMayBeTextOrAnObject) {
  const auto conversation = [](const std::string& arguments) {
    return std::string(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [
             {"type": "function", "function": {"name": "f", "arguments": )")
        .append(arguments)
        .append(R"(}}]}, {"role": "tool", "content": "r"}])");
  };
  const std::string object = render(qwen(), conversation(R"({"z": 1, "a": "x y"})"));
  EXPECT_NE(object.find("<parameter=z>\n1\n</parameter>\n<parameter=a>\nx y\n</parameter>"), std::string::npos)
      << object;
  EXPECT_EQ(render(qwen(), conversation(R"("{\"z\": 1, \"a\": \"x y\"}")")), object);
  EXPECT_EQ(render(qwen(), conversation(R"("")")), render(qwen(), conversation("{}")));
  for (const char* bad : {R"("{\"z\": ")", R"("[1]")", R"("nonsense")"}) {
    try {
      render(qwen(), conversation(bad));
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat);
      EXPECT_EQ(std::string(error.what()).find("messages[1].tool_calls[0].function.arguments: "), 0u) << error.what();
    }
  }
}

TEST(ChatTemplate, MissingContentIsEmptyOnlyWhereTheTemplateFailsOnIt) {
  const std::string messages = R"([{"role": "user", "content": null}, {"role": "user"}])";
  const ChatTemplate aware("{% for m in messages %}{{ m.content is none }},{% endfor %}", "", "");
  EXPECT_EQ(render(aware, messages), "True,False,");
  const ChatTemplate strict("{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}", "", "");
  EXPECT_EQ(render(strict, messages), "<><>");
  const ChatTemplate broken("{{ nope.x }}", "", "");
  EXPECT_THROW(render(broken, messages), jinja::TemplateError);
}

TEST(ChatTemplate, VariablesOfTheRequestWin) {
  const ChatTemplate chat("{{ bos_token }}{{ eos_token is defined }}{{ enable_thinking }}{{ effort }}{{ tools }}",
                          "<s>", "");
  ChatPrompt prompt;
  prompt.messages = from_json("[]");
  EXPECT_EQ(chat.render(prompt), "<s>FalseNone");
  prompt.enable_thinking = true;
  prompt.variables = from_json(R"({"enable_thinking": false, "effort": "low"})");
  EXPECT_EQ(chat.render(prompt), "<s>FalseFalselowNone");
}

TEST(ChatTemplate, MessagesMustBeAListOfObjects) {
  EXPECT_THROW(render(qwen(), "{}"), Error);
  EXPECT_THROW(render(qwen(), "[1]"), Error);
  EXPECT_THROW(render(qwen(), "[]"), jinja::TemplateError);  // what the template itself says
}

}  // namespace
}  // namespace sluice
