// Between a chat and a model's text: from messages to a prompt, and from what the model writes to the parts of an
// answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/jinja/value.h"
#include "chat/prompter.h"
#include "chat/tokenizer.h"
#include "engine/generation.h"

namespace sluice::server {

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed };

struct ChatQuestion {
  jinja::Value messages;  // a list of objects with role, and content that is a text, a list of texts, or missing
  jinja::Value tools;     // a list; None: the model may call nothing
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;                // of kNamed
  std::optional<bool> enable_thinking;  // not set: the template's default
  jinja::Value variables;               // an object of further variables of the template, or None
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the answer goes on with the assistant's message at the end
  bool part_reasoning = true;           // false: reasoning stays in the content
  std::optional<uint32_t> reasoning_tokens;
};

// Reads one answer while it comes.
class AnswerReader {
 public:
  virtual ~AnswerReader() = default;
  virtual std::vector<AnswerDelta> token(int32_t id, const std::string& text) = 0;
  // The end, with what was held back until then. `whole`: the tokens' text is all there, unlike where a stop string was
  // cut off.
  virtual std::vector<AnswerDelta> finish(const std::string& text, bool whole) = 0;
};

struct ChatPromptMade {
  ChatPromptTokens prompt;
  std::optional<ReasoningLimit> reasoning_limit;
};

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  // Any thread may ask. Throws Error for messages that the template refuses.
  virtual ChatPromptMade prompt(const ChatQuestion& question) const = 0;
  // For one answer to that prompt.
  virtual std::unique_ptr<AnswerReader> reader(const ChatQuestion& question, const ChatPromptMade& prompt) const = 0;
};

// By a template, remembering the answers that were given lately (ChatPrompter, AnswerParser, AnswerMemory). `tokenizer`
// must outlive it. Throws jinja::TemplateError.
std::unique_ptr<ChatFormat> template_format(const chat::Tokenizer& tokenizer, const std::string& source);

}  // namespace sluice::server
