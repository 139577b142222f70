// A model's chat template with its special tokens: from the messages of a request to the prompt's text. The language is
// in chat/jinja; here is what a request needs before and around it. Not here: parsing requests, tokenizing the prompt.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat/jinja/jinja.h"

namespace sluice {

// What is to be rendered. Values are as in the OpenAI chat API, from jinja::from_json.
struct ChatPrompt {
  jinja::Value messages;                // a list of dicts
  jinja::Value tools;                   // a list, or None
  std::optional<bool> enable_thinking;  // not set: the template's default
  bool add_generation_prompt = true;
  jinja::Value variables;  // a dict of further variables that the template knows, or None; they win over all others
};

// Messages as templates expect them, where the API allows more:
//   content that is a list of text parts becomes their texts in a row (lists with other parts stay);
//   a tool call's arguments, a JSON text in the API, become the object that it holds (empty text: an empty object).
// Throws Error(kFormat) naming the place when messages is no list of dicts or arguments are no JSON object.
jinja::Value prepare_messages(const jinja::Value& messages);

class ChatTemplate {
 public:
  // `bos_token` and `eos_token` are the variables of that name; empty ones are left undefined, as transformers does.
  // Throws jinja::TemplateError(kSyntax, kLimit or kUnsupported) with the line.
  ChatTemplate(std::string_view source, std::string bos_token, std::string eos_token);

  // The prompt for prepare_messages(prompt.messages). A message whose content is null or missing is shown to the
  // template as it is; only if the template fails on it is it rendered again with an empty text in its place.
  // Throws Error(kFormat) as prepare_messages, jinja::TemplateError as Template::render.
  std::string render(const ChatPrompt& prompt, const jinja::Environment& environment = {}) const;

 private:
  jinja::Template template_;
  std::string bos_token_, eos_token_;
};

}  // namespace sluice
