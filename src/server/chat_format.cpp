#include "server/chat_format.h"

#include <algorithm>

#include "chat/reasoning.h"
#include "chat/template.h"
#include "server/request.h"

namespace sluice::server {

namespace {

class ReasoningReader : public AnswerReader {
 public:
  ReasoningReader(bool inside, bool part_reasoning) : splitter_(inside), part_reasoning_(part_reasoning) {}

  std::vector<ChatPart> token(int32_t, const std::string& text) override {
    return part_reasoning_ ? parts_of(splitter_.feed(text)) : parts_of({{}, text});
  }

  std::vector<ChatPart> finish(const std::string& text, bool) override {
    if (!part_reasoning_) return parts_of({{}, text});
    OutputDelta delta = splitter_.feed(text);
    const OutputDelta end = splitter_.finish();
    delta.reasoning += end.reasoning;
    delta.content += end.content;
    return parts_of(std::move(delta));
  }

 private:
  static std::vector<ChatPart> parts_of(OutputDelta delta) {
    std::vector<ChatPart> parts;
    if (!delta.reasoning.empty()) parts.push_back({ChatPart::Kind::kReasoning, std::move(delta.reasoning)});
    if (!delta.content.empty()) parts.push_back({ChatPart::Kind::kContent, std::move(delta.content)});
    return parts;
  }

  ReasoningSplitter splitter_;
  bool part_reasoning_;
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
    made.tokens = tokens_of(made.text);
    // Where the answer's turn begins, earlier turns may be written anew later on.
    chat.add_generation_prompt = false;
    const std::vector<int32_t> before = tokens_of(template_.render(chat));
    const auto common = static_cast<size_t>(std::ranges::mismatch(before, made.tokens).in1 - before.begin());
    if (common > 0 && common < made.tokens.size()) made.turn_starts.push_back(common);
    if (question.reasoning_tokens && prompt_opens_reasoning(made.text))
      made.reasoning_limit = {*question.reasoning_tokens, tokenizer_.encode("\n</think>\n\n", /*parse_special=*/true)};
    return made;
  }

  std::unique_ptr<AnswerReader> reader(const ChatQuestion& question, const ChatPromptMade& prompt) const override {
    return std::make_unique<ReasoningReader>(prompt_opens_reasoning(prompt.text), question.part_reasoning);
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
