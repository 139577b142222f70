#include "server/chat_format.h"

#include <algorithm>
#include <utility>

#include "chat/reasoning.h"
#include "chat/template.h"
#include "server/request.h"

namespace sluice::server {

namespace {

class ParsingReader : public AnswerReader {
 public:
  ParsingReader(const ChatQuestion& question, const ChatPromptMade& prompt)
      : tools_(question.tool_choice == ToolChoice::kNone ? jinja::Value() : question.tools),
        parser_(tools_, prompt.inside_reasoning, question.part_reasoning),
        opening_(parser_.feed(prompt.opening)) {}

  std::vector<AnswerDelta> token(int32_t, const std::string& text) override { return with_opening(parser_.feed(text)); }

  std::vector<AnswerDelta> finish(const std::string& text, bool) override {
    std::vector<AnswerDelta> out = with_opening(parser_.feed(text));
    for (AnswerDelta& delta : parser_.finish()) out.push_back(std::move(delta));
    return out;
  }

 private:
  std::vector<AnswerDelta> with_opening(std::vector<AnswerDelta> deltas) {
    if (opening_.empty()) return deltas;
    std::vector<AnswerDelta> out = std::exchange(opening_, {});
    for (AnswerDelta& delta : deltas) out.push_back(std::move(delta));
    return out;
  }

  ToolSet tools_;
  AnswerParser parser_;
  std::vector<AnswerDelta> opening_;  // of what the prompt has begun
};

class TemplateFormat : public ChatFormat {
 public:
  TemplateFormat(const chat::Tokenizer& tokenizer, std::string source)
      : tokenizer_(tokenizer),
        source_(std::move(source)),
        template_(source_, text_of(tokenizer.bos()), text_of(tokenizer.eos())) {}

  ChatPromptMade prompt(const ChatQuestion& question) const override {
    ChatPrompt chat{.messages = question.messages,
                    .tools = question.tool_choice == ToolChoice::kNone ? jinja::Value() : question.tools,
                    .enable_thinking = question.enable_thinking,
                    .add_generation_prompt = question.add_generation_prompt,
                    .variables = question.variables};
    ChatPromptMade made;
    made.text = template_.render(chat);
    made.inside_reasoning = prompt_opens_reasoning(made.text);
    if (question.tool_choice == ToolChoice::kRequired || question.tool_choice == ToolChoice::kNamed) {
      made.opening = call_opening(call_format(source_), question.tool_name, made.inside_reasoning);
      made.text += made.opening;
    }
    made.tokens = tokens_of(made.text);
    // Where the answer's turn begins, earlier turns may be written anew later on.
    chat.add_generation_prompt = false;
    const std::vector<int32_t> before = tokens_of(template_.render(chat));
    const auto common = static_cast<size_t>(std::ranges::mismatch(before, made.tokens).in1 - before.begin());
    if (common > 0 && common < made.tokens.size()) made.turn_starts.push_back(common);
    if (question.reasoning_tokens && made.inside_reasoning && made.opening.empty())
      made.reasoning_limit = {*question.reasoning_tokens, tokenizer_.encode("\n</think>\n\n", /*parse_special=*/true)};
    return made;
  }

  std::unique_ptr<AnswerReader> reader(const ChatQuestion& question, const ChatPromptMade& prompt) const override {
    return std::make_unique<ParsingReader>(question, prompt);
  }

  const std::string& source() const override { return source_; }

 private:
  std::string text_of(std::optional<int32_t> token) const { return token ? tokenizer_.text(*token) : std::string(); }
  std::vector<int32_t> tokens_of(const std::string& text) const {
    return read_tokens("prompt", jinja::Value(text), tokenizer_, /*add_bos=*/true, /*parse_special=*/true);
  }

  const chat::Tokenizer& tokenizer_;
  std::string source_;
  ChatTemplate template_;
};

}  // namespace

std::unique_ptr<ChatFormat> template_format(const chat::Tokenizer& tokenizer, std::string source) {
  return std::make_unique<TemplateFormat>(tokenizer, std::move(source));
}

}  // namespace sluice::server
