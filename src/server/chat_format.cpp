#include "server/chat_format.h"

#include <mutex>
#include <utility>

#include "chat/history.h"

namespace sluice::server {

namespace {

// Of answers that clients may send back: some hundred conversations' last turns.
constexpr size_t kRememberedAnswers = 4096;
constexpr size_t kRememberedBytes = size_t{64} << 20;

// An AnswerMemory for many threads. The engine's thread only leaves answers here, so that it never waits for a prompt
// that is being made.
class SharedMemory {
 public:
  void leave(RememberedAnswer answer, ParsedAnswer parsed) {
    const std::lock_guard lock(left_mutex_);
    left_.emplace_back(std::move(answer), std::move(parsed));
  }

  template <typename Use>
  auto with(Use&& use) {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<RememberedAnswer, ParsedAnswer>> left;
    {
      const std::lock_guard taken(left_mutex_);
      left.swap(left_);
    }
    for (auto& [answer, parsed] : left) memory_.remember(std::move(answer), parsed);
    return use(memory_);
  }

 private:
  std::mutex mutex_;
  AnswerMemory memory_{kRememberedAnswers, kRememberedBytes};
  std::mutex left_mutex_;
  std::vector<std::pair<RememberedAnswer, ParsedAnswer>> left_;
};

class ParsingReader : public AnswerReader {
 public:
  ParsingReader(const ChatQuestion& question, ChatPromptTokens prompt, std::shared_ptr<SharedMemory> memory)
      : prompt_(std::move(prompt)),
        memory_(std::move(memory)),
        tools_(question.tool_choice == ToolChoice::kNone ? jinja::Value() : question.tools),
        parser_(tools_, prompt_.opens_reasoning, question.part_reasoning) {
    begun_ = noted(parser_.feed(prompt_.answer_start));
    if (question.continue_final_message) begun_.clear();  // the client has it
  }

  std::vector<AnswerDelta> token(int32_t id, const std::string& text) override {
    tokens_.push_back(id);
    return with_begun(noted(parser_.feed(text)));
  }

  std::vector<AnswerDelta> finish(const std::string& text, bool whole) override {
    std::vector<AnswerDelta> out = with_begun(noted(parser_.feed(text)));
    for (AnswerDelta& delta : noted(parser_.finish())) out.push_back(std::move(delta));
    if (whole) memory_->leave(remembered_answer(prompt_, tokens_), std::move(parsed_));
    return out;
  }

 private:
  std::vector<AnswerDelta> noted(std::vector<AnswerDelta> deltas) {
    for (const AnswerDelta& delta : deltas) parsed_.add(delta);
    return deltas;
  }

  std::vector<AnswerDelta> with_begun(std::vector<AnswerDelta> deltas) {
    if (begun_.empty()) return deltas;
    std::vector<AnswerDelta> out = std::exchange(begun_, {});
    for (AnswerDelta& delta : deltas) out.push_back(std::move(delta));
    return out;
  }

  ChatPromptTokens prompt_;
  std::shared_ptr<SharedMemory> memory_;
  ToolSet tools_;
  AnswerParser parser_;
  std::vector<AnswerDelta> begun_;  // of what the prompt gives the answer to begin with, until it is told
  std::vector<int32_t> tokens_;
  ParsedAnswer parsed_;
};

class TemplateFormat : public ChatFormat {
 public:
  TemplateFormat(const chat::Tokenizer& tokenizer, const std::string& source)
      : tokenizer_(tokenizer), prompter_(tokenizer, source), memory_(std::make_shared<SharedMemory>()) {}

  ChatPromptMade prompt(const ChatQuestion& question) const override {
    PromptRequest request;
    request.chat.messages = question.messages;
    request.chat.tools = question.tool_choice == ToolChoice::kNone ? jinja::Value() : question.tools;
    request.chat.enable_thinking = question.enable_thinking;
    request.chat.add_generation_prompt = question.add_generation_prompt;
    request.chat.variables = question.variables;
    request.continue_final_message = question.continue_final_message;
    if (question.tool_choice == ToolChoice::kRequired || question.tool_choice == ToolChoice::kNamed)
      request.call = question.tool_name;
    ChatPromptMade made;
    made.prompt = memory_->with([&](AnswerMemory& memory) { return prompter_.prompt(request, &memory); });
    if (question.reasoning_tokens && made.prompt.opens_reasoning && made.prompt.answer_start.empty())
      made.reasoning_limit = {*question.reasoning_tokens, tokenizer_.encode("\n</think>\n\n", /*parse_special=*/true)};
    return made;
  }

  std::unique_ptr<AnswerReader> reader(const ChatQuestion& question, const ChatPromptMade& made) const override {
    return std::make_unique<ParsingReader>(question, made.prompt, memory_);
  }

 private:
  const chat::Tokenizer& tokenizer_;
  ChatPrompter prompter_;
  std::shared_ptr<SharedMemory> memory_;
};

}  // namespace

std::unique_ptr<ChatFormat> template_format(const chat::Tokenizer& tokenizer, const std::string& source) {
  return std::make_unique<TemplateFormat>(tokenizer, source);
}

}  // namespace sluice::server
