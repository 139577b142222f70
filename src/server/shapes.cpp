#include "server/shapes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace sluice::server {

namespace {

double per_second(size_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0; }
double ms_per_token(size_t tokens, double seconds) {
  return tokens > 0 ? seconds * 1e3 / static_cast<double>(tokens) : 0.0;
}

// JSON has no infinity: llama-server writes the least number instead.
double finite(float logprob) { return std::isfinite(logprob) ? logprob : -std::numeric_limits<float>::max(); }

Json chance(int32_t token, float logprob, const chat::Tokenizer& tokenizer) {
  const std::string piece = tokenizer.piece(token);
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return {{"id", token}, {"token", utf8::sanitize(piece)}, {"bytes", std::move(bytes)}, {"logprob", finite(logprob)}};
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

Json timings(const GenerationStats& stats, const chat::Tokenizer& tokenizer) {
  Json out = {{"cache_n", stats.cached_tokens},
              {"prompt_n", stats.computed_tokens},
              {"prompt_ms", stats.prompt_seconds * 1e3},
              {"prompt_per_token_ms", ms_per_token(stats.computed_tokens, stats.prompt_seconds)},
              {"prompt_per_second", per_second(stats.computed_tokens, stats.prompt_seconds)},
              {"predicted_n", stats.answer_tokens},
              {"predicted_ms", stats.answer_seconds * 1e3},
              {"predicted_per_token_ms", ms_per_token(stats.answer_tokens, stats.answer_seconds)},
              {"predicted_per_second", per_second(stats.answer_tokens, stats.answer_seconds)},
              {"queue_ms", stats.queue_seconds * 1e3},
              {"cache_reason", name_of(stats.cache_reason)}};
  if (stats.diverged_at > 0) out["cache_diverged_at"] = stats.diverged_at;
  if (!stats.instead.empty()) out["cache_had"] = utf8::sanitize(tokenizer.decode(stats.instead, false));
  return out;
}

Json prompt_progress(const GenerationStats& stats) {
  return {{"total", stats.prompt_tokens},
          {"cache", stats.cached_tokens},
          {"processed", stats.cached_tokens + stats.computed_tokens},
          {"time_ms", stats.prompt_seconds * 1e3}};
}

Json usage(const std::vector<GenerationStats>& answers, size_t answers_per_prompt) {
  size_t prompt = 0, cached = 0, answer = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    answer += answers[i].answer_tokens;
    if (i % answers_per_prompt != 0) continue;
    prompt += answers[i].prompt_tokens;
    cached += answers[i].cached_tokens;
  }
  return {{"completion_tokens", answer},
          {"prompt_tokens", prompt},
          {"total_tokens", prompt + answer},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

const char* stop_type(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "eos";
    case StopReason::kStopString:
      return "word";
    case StopReason::kLimit:
    case StopReason::kDeadline:
      return "limit";
    case StopReason::kInterrupted:
    case StopReason::kShutdown:
      break;
  }
  return "none";
}

const char* finish_reason(StopReason reason) {
  return reason == StopReason::kEndOfText || reason == StopReason::kStopString ? "stop" : "length";
}

bool is_unusual(StopReason reason) { return reason == StopReason::kDeadline || reason == StopReason::kShutdown; }

Json logprob_entry(const TokenEvent& event, const chat::Tokenizer& tokenizer) {
  Json entry = chance(event.token, event.logprob, tokenizer);
  Json likely = Json::array();
  for (const TokenChance& other : event.likely) likely.push_back(chance(other.token, other.logprob, tokenizer));
  entry["top_logprobs"] = std::move(likely);
  return entry;
}

Json legacy_logprobs(const Json& content, size_t offset) {
  Json tokens = Json::array(), own = Json::array(), top = Json::array(), offsets = Json::array();
  for (const Json& entry : content) {
    const auto& text = entry["token"].get_ref<const std::string&>();
    tokens.push_back(text);
    own.push_back(entry["logprob"]);
    Json likely = Json::object();
    for (const Json& other : entry["top_logprobs"])
      likely[other["token"].get_ref<const std::string&>()] = other["logprob"];
    top.push_back(std::move(likely));
    offsets.push_back(offset);
    offset += characters(text);
  }
  return {{"content", content},
          {"tokens", std::move(tokens)},
          {"token_logprobs", std::move(own)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

Json sampling_settings(const decode::SamplingParameters& p) {
  Json bias = Json::array();
  for (const auto& [token, value] : p.logit_bias)
    bias.push_back({{"bias", std::isfinite(value) ? Json(value) : Json(false)}, {"token", token}});
  return {{"seed", p.seed},
          {"temperature", p.temperature},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"repeat_last_n", p.penalty_window == UINT32_MAX ? Json(-1) : Json(p.penalty_window)},
          {"repeat_penalty", p.repeat_penalty},
          {"presence_penalty", p.presence_penalty},
          {"frequency_penalty", p.frequency_penalty},
          {"logit_bias", std::move(bias)},
          {"samplers", {"penalties", "top_k", "top_p", "min_p", "temperature"}}};
}

Json generation_settings(const GenerationRequest& request, const AnswerOptions& options) {
  Json out = sampling_settings(request.sampling);
  const Json limit = request.max_tokens == UINT32_MAX ? Json(-1) : Json(request.max_tokens);
  out["stop"] = request.stop_strings;
  out["max_tokens"] = limit;
  out["n_predict"] = limit;
  out["n"] = options.choices;
  out["ignore_eos"] = request.ignore_end;
  out["stream"] = options.stream;
  out["n_probs"] = request.n_likely.value_or(0);
  out["cache_prompt"] = request.use_cache;
  out["timings_per_token"] = options.timings_per_token;
  return out;
}

}  // namespace sluice::server
