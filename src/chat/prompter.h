// From a chat request to the tokens of its prompt: the template's text, with answers given before as the tokens that
// were generated, and the places where a later request may take another turn. Not here: the template language,
// sampling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/history.h"
#include "chat/template.h"
#include "chat/tokenizer.h"

namespace sluice {

struct PromptRequest {
  ChatPrompt chat;  // messages as they came: fit_messages is applied
  // If the last message is an assistant's without calls, the answer goes on with it.
  bool continue_final_message = false;
  // The answer must be a call: of this function, or, if empty, of any.
  std::optional<std::string> call;
};

struct ChatPromptTokens {
  std::vector<int32_t> tokens;
  // Numbers of tokens at which messages begin that a later request may well replace, ascending: behind the system
  // message and the tools, at the last question, at the answer.
  std::vector<size_t> turn_starts;
  bool opens_reasoning = false;  // the template left the model in a think block: what AnswerParser wants to know
  std::string text;
  std::string opening;  // the end of the template's text that opens the answer's turn; empty where that isn't known
  std::string
      answer_start;  // stands behind: the answer's own beginning, given to the model; feed it to AnswerParser first
  size_t answer_begin = 0;  // the number of tokens before answer_start
};

// The tokens of a text that a template wrote, or that is to be continued, after BOS where the model wants one.
std::vector<int32_t> prompt_tokens(const chat::Tokenizer& tokenizer, std::string_view text);

// What AnswerMemory should know of a prompt and the tokens generated from it.
RememberedAnswer remembered_answer(const ChatPromptTokens& prompt, std::span<const int32_t> generated);

// Immutable: may be used by any number of threads at once (but an AnswerMemory by one).
class ChatPrompter {
 public:
  // `tokenizer` must outlive it. Throws jinja::TemplateError for a template that can't be parsed.
  ChatPrompter(const chat::Tokenizer& tokenizer, const std::string& template_source);

  // Answers in the history that `memory` knows stand as the tokens that were generated, provided that the template puts
  // before them what it put before when they were asked for. It is found out by rendering marks in place of their
  // content and reasoning: where a mark is missing (a template that leaves earlier reasoning out) or something else
  // stands in front, the message is as the template has it. So a prompt and its answer are a prefix, token by token, of
  // the next prompt whenever the template's texts allow it.
  //
  // All is encoded with control tokens, as the template's marks are; what users write is not kept from forging them.
  //
  // Throws as fit_messages and ChatTemplate::render.
  ChatPromptTokens prompt(const PromptRequest& request, AnswerMemory* memory = nullptr) const;

  CallFormat call_format() const { return call_format_; }

 private:
  struct Known;
  struct Rendered;

  Rendered render(const ChatPrompt& chat, const AnswerMemory* memory) const;
  void find_turn_mark();
  std::vector<size_t> turn_starts(std::span<const int32_t> tokens, bool has_system) const;

  const chat::Tokenizer& tokenizer_;
  ChatTemplate template_;
  CallFormat call_format_;
  std::optional<int32_t> turn_mark_;  // the token that begins the turn of an answer, and so of most messages
};

}  // namespace sluice
