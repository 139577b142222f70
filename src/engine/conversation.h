// A chat over a session: messages in, prompt tokens by the model's template, an answer with its reasoning set apart.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "chat/jinja/value.h"
#include "chat/prompter.h"
#include "chat/reasoning.h"
#include "engine/session.h"

namespace sluice {

struct ChatOptions {
  std::optional<bool> enable_thinking;  // not given: the template's default
  jinja::Value tools;                   // a list, or none
  GenerateOptions generate;             // on_text is not used: see on_delta
  // Gets pieces of reasoning and answer as they become certain; returns false to end the answer.
  std::function<bool(const OutputDelta&)> on_delta;
};

struct ChatAnswer {
  Answer answer;  // tokens, timings; text as generated
  std::string reasoning;
  std::string content;
};

class Conversation {
 public:
  // With the template of the model file, or with another one's source. Throws Error(kUnsupported) when there is
  // neither, and jinja::TemplateError for one that can't be parsed.
  Conversation(Engine& engine, const std::string* template_source = nullptr);

  // Answers given before stand in it as they were generated: see ChatPrompter.
  ChatPromptTokens prompt(const jinja::Value& messages, const ChatOptions& options) const;

  // Answers `messages`, a list as in the OpenAI chat API. Tokens that the session has seen already, up to the end of
  // the turn before, are not computed again. Throws as ChatTemplate::render and Session::generate.
  ChatAnswer answer(const jinja::Value& messages, const decode::Sampler& sampler, const ChatOptions& options);

  Session& session() { return session_; }

 private:
  ChatPrompter prompter_;
  mutable AnswerMemory memory_;  // a prompt changes what it forgets first
  Session session_;
};

// The tokens of a plain text to be continued, after BOS where the model wants one.
std::vector<int32_t> completion_tokens(const Engine& engine, const std::string& text);

}  // namespace sluice
