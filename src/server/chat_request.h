// From the fields of /v1/chat/completions and /apply-template to a question.
#pragma once

#include "server/chat_format.h"
#include "server/request.h"

namespace sluice::server {

struct ChatRequest {
  ChatQuestion question;
  GenerationRequest generation;  // without prompt
  AnswerOptions options;
  bool one_call = false;  // an answer ends behind its first call
};

// What the server was started with, where a request says nothing.
struct ChatDefaults {
  bool part_reasoning = true;
  std::optional<uint32_t> reasoning_tokens;
};

// Both throw ApiError(400) naming field, value and limit.
ChatRequest read_chat(const Fields& fields, const RequestContext& context, const ChatDefaults& defaults);
ChatQuestion read_question(const Fields& fields, const RequestLimits& limits);

}  // namespace sluice::server
