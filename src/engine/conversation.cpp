#include "engine/conversation.h"

#include <algorithm>

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

std::string text_of(const Engine& engine, std::optional<int32_t> token) {
  return token ? engine.tokenizer().text(*token) : std::string();
}

}  // namespace

std::vector<int32_t> completion_tokens(const Engine& engine, const std::string& text) {
  const chat::Tokenizer& tokenizer = engine.tokenizer();
  std::vector<int32_t> tokens = tokenizer.encode(text, /*parse_special=*/true);
  const bool wanted = tokenizer.add_bos() && tokenizer.bos().has_value();
  if (wanted && (tokens.empty() || tokens[0] != *tokenizer.bos())) tokens.insert(tokens.begin(), *tokenizer.bos());
  return tokens;
}

Conversation::Conversation(Engine& engine, const std::string* template_source)
    : engine_(engine),
      template_(source_of(engine, template_source), text_of(engine, engine.tokenizer().bos()),
                text_of(engine, engine.tokenizer().eos())),
      session_(engine) {}

ChatPromptTokens Conversation::prompt(const jinja::Value& messages, const ChatOptions& options) const {
  ChatPrompt chat{
      .messages = messages, .tools = options.tools, .enable_thinking = options.enable_thinking, .variables = {}};
  const std::string text = template_.render(chat);
  ChatPromptTokens prompt{completion_tokens(engine_, text), {}, prompt_opens_reasoning(text)};
  // Where the answer's turn begins: templates that drop earlier reasoning change the text behind this place, not
  // before.
  chat.add_generation_prompt = false;
  const std::vector<int32_t> before = completion_tokens(engine_, template_.render(chat));
  const auto common = static_cast<size_t>(std::ranges::mismatch(before, prompt.tokens).in1 - before.begin());
  if (common > 0 && common < prompt.tokens.size()) prompt.turn_starts.push_back(common);
  return prompt;
}

ChatAnswer Conversation::answer(const jinja::Value& messages, const decode::Sampler& sampler,
                                const ChatOptions& options) {
  const ChatPromptTokens prompt_tokens = prompt(messages, options);
  ChatAnswer out;
  ReasoningSplitter splitter(prompt_tokens.opens_reasoning);
  const auto take = [&](const OutputDelta& delta) {
    out.reasoning += delta.reasoning;
    out.content += delta.content;
    const bool any = !delta.reasoning.empty() || !delta.content.empty();
    return !any || !options.on_delta || options.on_delta(delta);
  };
  GenerateOptions generate = options.generate;
  generate.on_text = [&](const std::string& text) { return take(splitter.feed(text)); };
  out.answer = session_.generate(prompt_tokens.tokens, prompt_tokens.turn_starts, sampler, generate);
  take(splitter.finish());
  return out;
}

}  // namespace sluice
