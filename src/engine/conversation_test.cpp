// From messages to prompt tokens and from tokens to reasoning and answer; what a second turn need not compute again.
#include "engine/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/test_models.h"

namespace sluice {
namespace {

using test::operator+;
using Tokens = std::vector<int32_t>;

// Opens a think block before every answer, and shows reasoning of the last answer only, as the Qwen templates do.
const std::string kThinking =
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.last %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% if enable_thinking is false %}\n</think>\n\n"
    "{% endif %}{% endif %}";

jinja::Value messages(const char* json) { return jinja::from_json(json); }

// The tokens in turn, each of them once: bias decides, and what has come is out of favour.
decode::SamplingParameters script(const Tokens& tokens) {
  decode::SamplingParameters p;
  p.temperature = 0.0f;
  p.presence_penalty = 5000.0f;
  p.penalty_window = static_cast<uint32_t>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i)
    p.logit_bias.push_back({tokens[i], 4000.0f - 100.0f * static_cast<float>(i)});
  return p;
}

class ConversationTest : public ::testing::Test {
 protected:
  int32_t token(const char* text) const { return engine.tokenizer().encode(text, true).at(0); }
  std::string text_of(const Tokens& tokens) const { return engine.tokenizer().decode(tokens, false); }

  // Tokens that the prompts of these tests don't hold, and the end of the turn.
  Tokens thoughts_and_answer() const { return {token("k"), token("q"), token("</think>"), token("x"), token("z")}; }

  ChatAnswer ask(Conversation& conversation, const char* json, const Tokens& scripted) {
    ChatOptions options;
    options.generate.max_tokens = static_cast<uint32_t>(scripted.size());
    options.on_delta = [&](const OutputDelta& delta) {
      shown.reasoning += delta.reasoning;
      shown.content += delta.content;
      return true;
    };
    shown = {};
    return conversation.answer(messages(json), engine.sampler(script(scripted)), options);
  }

  Engine engine{test::micro_options()};
  OutputDelta shown;
};

TEST_F(ConversationTest, ThePromptIsTheRenderedTemplateAndKnowsWhereTheAnswersTurnStarts) {
  const Conversation conversation(engine);
  const ChatPromptTokens prompt = conversation.prompt(messages(R"([{"role":"user","content":"hi"}])"), {});
  EXPECT_EQ(text_of(prompt.tokens), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(prompt.tokens, ::testing::Contains(token("<|im_start|>"))) << "marks of turns are single tokens";
  ASSERT_EQ(prompt.turn_starts.size(), 1u);
  EXPECT_EQ(text_of(test::first(prompt.tokens, prompt.turn_starts[0])), "<|im_start|>user\nhi<|im_end|>\n");
  EXPECT_FALSE(prompt.opens_reasoning);
}

TEST_F(ConversationTest, ThinkingAndToolsReachTheTemplate) {
  const std::string source = "{{ enable_thinking }} {{ tools[0].function.name if tools else 'no tools' }}";
  const Conversation conversation(engine, &source);
  ChatOptions options;
  const auto rendered = [&] { return text_of(conversation.prompt(messages("[]"), options).tokens); };
  EXPECT_EQ(rendered(), " no tools");
  options.enable_thinking = false;
  EXPECT_EQ(rendered(), "False no tools");
  options.enable_thinking = true;
  options.tools = jinja::from_json(R"([{"type":"function","function":{"name":"clock"}}])");
  EXPECT_EQ(rendered(), "True clock");
}

TEST_F(ConversationTest, ReasoningIsPartedFromTheAnswer) {
  Conversation conversation(engine, &kThinking);
  const ChatAnswer got = ask(conversation, R"([{"role":"user","content":"hi"}])", thoughts_and_answer());
  EXPECT_EQ(got.reasoning, "kq");
  EXPECT_EQ(got.content, "xz");
  EXPECT_EQ(got.answer.text, "kq</think>xz");
  EXPECT_EQ(shown.reasoning, got.reasoning);
  EXPECT_EQ(shown.content, got.content);
}

TEST_F(ConversationTest, AnAnswerThatEndsWhileItThinksIsAllReasoning) {
  Conversation conversation(engine, &kThinking);
  const ChatAnswer got = ask(conversation, R"([{"role":"user","content":"hi"}])", {token("k"), token("q")});
  EXPECT_EQ(got.reasoning, "kq");
  EXPECT_EQ(got.content, "");
}

TEST_F(ConversationTest, AReceiverThatHasEnoughEndsTheAnswer) {
  Conversation conversation(engine);
  ChatOptions options;
  options.generate.max_tokens = 5;
  options.on_delta = [](const OutputDelta&) { return false; };
  const ChatAnswer got = conversation.answer(messages(R"([{"role":"user","content":"hi"}])"),
                                             engine.sampler(script(thoughts_and_answer())), options);
  EXPECT_EQ(got.answer.reason, StopReason::kInterrupted);
  EXPECT_EQ(got.answer.tokens.size(), 1u);
}

TEST_F(ConversationTest, ASecondTurnReusesTheFirst) {
  Conversation conversation(engine);
  const char* first_turn = R"([{"role":"user","content":"hi"}])";
  const Tokens scripted = {token("k"), token("q"), token("<|im_end|>")};
  const ChatAnswer first = ask(conversation, first_turn, scripted);
  EXPECT_EQ(first.answer.reason, StopReason::kEndOfText);
  EXPECT_EQ(first.answer.cached_tokens, 0u);
  const char* second_turn = R"([{"role":"user","content":"hi"},{"role":"assistant","content":"kq"},
                                {"role":"user","content":"more"}])";
  const ChatAnswer second = ask(conversation, second_turn, scripted);
  EXPECT_EQ(second.answer.cached_tokens, first.answer.prompt_tokens + 2) << "prompt and answer";

  Conversation fresh(engine);
  EXPECT_EQ(ask(fresh, second_turn, scripted).content, second.content);
}

TEST_F(ConversationTest, ASecondTurnWhoseTemplateDropsReasoningGoesBackToTheStartOfTheAnswersTurn) {
  Conversation conversation(engine, &kThinking);
  const auto first_turn = R"([{"role":"user","content":"hi"}])";
  ask(conversation, first_turn, thoughts_and_answer());
  const size_t turn_start = conversation.prompt(messages(first_turn), {}).turn_starts.at(0);
  const char* second_turn =
      R"([{"role":"user","content":"hi"},{"role":"assistant","content":"xz","reasoning_content":"kq"},
          {"role":"user","content":"more"}])";
  const ChatAnswer second = ask(conversation, second_turn, thoughts_and_answer());
  EXPECT_EQ(second.answer.cached_tokens, turn_start);

  Conversation fresh(engine, &kThinking);
  EXPECT_EQ(ask(fresh, second_turn, thoughts_and_answer()).answer.cached_tokens, 0u);
  EXPECT_EQ(conversation.session().length(), fresh.session().length());
}

TEST_F(ConversationTest, AskingAgainComputesOneToken) {
  Conversation conversation(engine);
  const char* turn = R"([{"role":"user","content":"hi"}])";
  const ChatAnswer first = ask(conversation, turn, thoughts_and_answer());
  const ChatAnswer again = ask(conversation, turn, thoughts_and_answer());
  EXPECT_EQ(again.answer.cached_tokens, first.answer.prompt_tokens - 1);
  EXPECT_EQ(again.content, first.content);
}

TEST_F(ConversationTest, ATemplateThatCannotBeParsedIsAnErrorWithItsLine) {
  const std::string broken = "line one\n{% for x in %}";
  try {
    const Conversation conversation(engine, &broken);
    FAIL() << "parsed";
  } catch (const jinja::TemplateError& error) {
    EXPECT_EQ(error.line(), 2);
  }
}

TEST(Conversation, AModelWithoutATemplateNeedsOne) {
  const test::ModelWithoutKey model("tokenizer.chat_template");
  EngineOptions options = test::micro_options();
  options.path = model.path();
  Engine engine(options);
  EXPECT_EQ(engine.chat_template(), nullptr);
  try {
    const Conversation conversation(engine);
    FAIL() << "there is no template";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("--chat-template-file"));
  }
  EXPECT_NO_THROW(Conversation(engine, &kThinking));
}

TEST(CompletionTokens, BeginWithBosOnceWhereTheModelWantsIt) {
  EngineOptions options = test::micro_options();
  Engine without(options);
  EXPECT_EQ(completion_tokens(without, "a"), without.tokenizer().encode("a", true));
  options.overrides = {"tokenizer.ggml.add_bos_token=bool:true"};
  Engine with(options);
  const int32_t bos = with.tokenizer().bos().value();
  EXPECT_EQ(completion_tokens(with, "a"), Tokens{bos} + with.tokenizer().encode("a", true));
  EXPECT_EQ(completion_tokens(with, "<|endoftext|>a"), completion_tokens(with, "a")) << "the text begins with it";
  EXPECT_EQ(completion_tokens(with, ""), Tokens{bos});
}

}  // namespace
}  // namespace sluice
