#include "engine/conversation.h"

#include "base/error.h"
#include "chat/reasoning.h"

namespace sluice {

namespace {

const std::string& source_of(const Engine& engine, const std::string* given) {
  if (given != nullptr) return *given;
  if (engine.chat_template() != nullptr) return *engine.chat_template();
  fail(ErrorKind::kUnsupported,
       "the model file has no chat template: name one with --chat-template-file, or use --no-chat");
}

// More than a chat on a terminal comes to.
constexpr size_t kMostAnswers = 1024, kMostAnswerBytes = size_t{16} << 20;

}  // namespace

std::vector<int32_t> completion_tokens(const Engine& engine, const std::string& text) {
  return prompt_tokens(engine.tokenizer(), text);
}

Conversation::Conversation(Engine& engine, const std::string* template_source)
    : prompter_(engine.tokenizer(), source_of(engine, template_source)),
      memory_(kMostAnswers, kMostAnswerBytes),
      session_(engine) {}

ChatPromptTokens Conversation::prompt(const jinja::Value& messages, const ChatOptions& options) const {
  PromptRequest request;
  request.chat.messages = messages;
  request.chat.tools = options.tools;
  request.chat.enable_thinking = options.enable_thinking;
  return prompter_.prompt(request, &memory_);
}

ChatAnswer Conversation::answer(const jinja::Value& messages, const decode::Sampler& sampler,
                                const ChatOptions& options) {
  const ChatPromptTokens asked = prompt(messages, options);
  ChatAnswer out;
  ReasoningSplitter splitter(asked.opens_reasoning);
  const auto take = [&](const OutputDelta& delta) {
    out.reasoning += delta.reasoning;
    out.content += delta.content;
    const bool any = !delta.reasoning.empty() || !delta.content.empty();
    return !any || !options.on_delta || options.on_delta(delta);
  };
  GenerateOptions generate = options.generate;
  generate.on_text = [&](const std::string& text) { return take(splitter.feed(text)); };
  out.answer = session_.generate(asked.tokens, asked.turn_starts, sampler, generate);
  take(splitter.finish());
  const bool whole = out.answer.reason == StopReason::kEndOfText || out.answer.reason == StopReason::kLimit;
  if (whole) memory_.remember(remembered_answer(asked, out.answer.tokens), {out.reasoning, out.content, {}});
  return out;
}

}  // namespace sluice
