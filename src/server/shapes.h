// Parts that several answers have: numbers, settings, log-probabilities, in the shapes of llama-server and OpenAI.
#pragma once

#include <string>
#include <vector>

#include "chat/tokenizer.h"
#include "engine/generation.h"
#include "server/json.h"
#include "server/request.h"

namespace sluice::server {

// llama-server's timings, and why tokens of the prompt were computed: `cache_reason`, and `cache_diverged_at`, the
// number of tokens that an earlier request had in common, with the text that it had there, `cache_had`.
Json timings(const GenerationStats& stats, const chat::Tokenizer& tokenizer);
// How much of the prompt is done: total, cache, processed, time_ms.
Json prompt_progress(const GenerationStats& stats);
// OpenAI's usage of all answers: each prompt counts once.
Json usage(const std::vector<GenerationStats>& answers, size_t answers_per_prompt);

// "eos", "word", "limit" or "none".
const char* stop_type(StopReason reason);
// "stop" or "length".
const char* finish_reason(StopReason reason);
// Whether who asked should be told by name, since OpenAI's API has no word for it.
bool is_unusual(StopReason reason);

// One token with its log-probability and those of the likeliest ones: OpenAI's members, and llama-server's id.
Json logprob_entry(const TokenEvent& event, const chat::Tokenizer& tokenizer);
// What /v1/completions had before chats: lists of tokens, their log-probabilities, of objects of the likeliest, and of
// places in the text. `content`: entries as above; `offset`: of the first token, in characters.
Json legacy_logprobs(const Json& content, size_t offset);

// The request as it was understood.
Json generation_settings(const GenerationRequest& request, const AnswerOptions& options);
Json sampling_settings(const decode::SamplingParameters& sampling);

}  // namespace sluice::server
