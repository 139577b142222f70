// From the fields of a request to what is asked of the engine and how the answer is to look. Chats: chat_request.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/jinja/value.h"
#include "chat/tokenizer.h"
#include "engine/generation.h"
#include "server/fields.h"

namespace sluice::server {

struct RequestLimits {
  size_t messages = 16384;    // of a conversation
  size_t tools = 1024;        // that the model may call
  size_t stop_strings = 128;  // of a request
  size_t stop_bytes = 1024;   // of one of them
  size_t answers = 128;       // to one request: prompts times `n`
  size_t logit_biases = 65536;
  size_t name_bytes = 256;  // of a tool, or of a member in response_fields
};

// What a request is read against.
struct RequestContext {
  const chat::Tokenizer& tokenizer;
  decode::SamplingParameters sampling;  // of fields that are left out
  std::optional<uint64_t> seed;         // likewise; not set: a new one for each request
  uint32_t context = 0;                 // tokens of a prompt and its answer
  uint32_t slots = 1;
  uint32_t max_tokens = UINT32_MAX;  // of an answer, where the request doesn't say
  RequestLimits limits;
};

// How the answer is to look.
struct AnswerOptions {
  bool stream = false;
  bool include_usage = false;
  bool timings_per_token = false;
  bool return_progress = false;
  bool return_tokens = false;
  bool echo = false;
  uint32_t choices = 1;  // answers to each prompt
  std::vector<std::string> response_fields;
  std::chrono::milliseconds keep_alive{10000};  // 0: never
};

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;
};

// A request of /completion or /v1/completions.
struct CompletionRequest {
  std::vector<Prompt> prompts;
  GenerationRequest generation;  // without prompt
  AnswerOptions options;
};

// Both throw ApiError(400) naming field, value and limit.
CompletionRequest read_completion(const Fields& fields, const RequestContext& context);
CompletionRequest read_openai_completion(const Fields& fields, const RequestContext& context);

// The parts that chats have too.
GenerationRequest read_generation(const Fields& fields, const RequestContext& context);
AnswerOptions read_answer_options(const Fields& fields);

// The prompts of a field: see `prompt` in field_tables.cpp. A text gets BOS in front where the model wants one.
std::vector<Prompt> read_prompts(const jinja::Value& value, const RequestContext& context);

// The tokens of a list of texts and tokens, or of one text. With `add_bos`, BOS goes before a text at the front, where
// the model wants one and the text doesn't begin with it.
std::vector<int32_t> read_tokens(std::string_view field, const jinja::Value& value, const chat::Tokenizer& tokenizer,
                                 bool add_bos, bool parse_special);

// Refuses a prompt without tokens, and one that leaves no room for an answer.
void check_length(const std::vector<int32_t>& prompt, const RequestContext& context);

}  // namespace sluice::server
