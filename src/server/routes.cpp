#include "server/routes.h"

#include <algorithm>

namespace sluice::server {

namespace {

constexpr std::string_view kJson = "application/json";

const FieldTable* fields_of_completion() { return &completion_fields(); }
const FieldTable* fields_of_openai_completion() { return &openai_completion_fields(); }
const FieldTable* fields_of_chat() { return &chat_fields(); }
const FieldTable* fields_of_template() { return &template_fields(); }
const FieldTable* fields_of_tokenize() { return &tokenize_fields(); }
const FieldTable* fields_of_detokenize() { return &detokenize_fields(); }
const FieldTable* fields_of_slot() { return &slot_fields(); }

std::vector<Route> make_routes() {
  return {
      {Endpoint::kHealth,
       "GET",
       {"/health", "/v1/health"},
       "Whether requests are being answered: 200 only if the model is loaded and work, if there is any, moves",
       false,
       false,
       nullptr,
       kJson,
       {{"status", "ok"}}},
      {Endpoint::kModels,
       "GET",
       {"/v1/models", "/models"},
       "The model that is served",
       false,
       false,
       nullptr,
       kJson,
       {{"object", "list"}, {"data", "one model: id, object, created, owned_by, meta"}}},
      {Endpoint::kProps,
       "GET",
       {"/props"},
       "How the server runs: settings of sampling that requests start from, the chat template, the plan of memory",
       true,
       true,
       nullptr,
       kJson,
       {{"default_generation_settings", "what holds where a request says nothing: n_ctx, params"},
        {"total_slots", "answers that are computed side by side"},
        {"model_alias", "the server's name for the model"},
        {"model_path", "its file"},
        {"chat_template", "Jinja; empty: none"},
        {"bos_token", "text of the token that begins a text"},
        {"eos_token", "text of the token that ends one"},
        {"modalities", "vision, audio: false"},
        {"memory", "bytes planned by category, and how full the caches are"},
        {"build_info", "the program's version"}}},
      {Endpoint::kSlots, "GET", {"/slots"}, "What each slot is doing, as a list", true, true, nullptr, kJson, {}},
      {Endpoint::kMetrics,
       "GET",
       {"/metrics"},
       "Sums and states for Prometheus",
       true,
       true,
       nullptr,
       "text/plain; version=0.0.4",
       {}},
      {Endpoint::kOpenApi,
       "GET",
       {"/openapi.json"},
       "These endpoints as OpenAPI 3.1",
       false,
       false,
       nullptr,
       kJson,
       {}},
      {Endpoint::kCompletion,
       "POST",
       {"/completion", "/completions"},
       "Goes on with a prompt; llama-server's format",
       true,
       true,
       fields_of_completion,
       kJson,
       {{"content", "the answer's text"},
        {"tokens", "its tokens, with return_tokens"},
        {"stop", "true in the last event of a stream"},
        {"stop_type", "eos, word, limit or none"},
        {"stopping_word", "the stop string that ended it"},
        {"stop_reason", "deadline or shutdown, if that ended it"},
        {"id_slot", "where it was computed"},
        {"tokens_predicted", "tokens of the answer"},
        {"tokens_evaluated", "tokens of the prompt"},
        {"tokens_cached", "of those, not computed again"},
        {"truncated", "false: prompts are never cut"},
        {"prompt", "the prompt's text"},
        {"generation_settings", "the request as it was understood"},
        {"completion_probabilities", "with n_probs: a list, one item a token"},
        {"prompt_progress", "with return_progress: total, cache, processed, time_ms"},
        {"timings", "cache_n, prompt_n, prompt_ms, predicted_n, predicted_ms, ..., cache_reason"}},
       true},
      {Endpoint::kOpenAiCompletion,
       "POST",
       {"/v1/completions"},
       "Goes on with a prompt; OpenAI's format",
       true,
       true,
       fields_of_openai_completion,
       kJson,
       {{"id", "of the answer"},
        {"object", "text_completion"},
        {"created", "seconds since 1970"},
        {"model", "the server's name for the model"},
        {"choices", "text, index, finish_reason, logprobs; one for each prompt and n"},
        {"usage", "prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details.cached_tokens"},
        {"timings", "as of /completion"}},
       true},
      {Endpoint::kChat,
       "POST",
       {"/v1/chat/completions", "/chat/completions"},
       "Answers a conversation; OpenAI's format",
       true,
       true,
       fields_of_chat,
       kJson,
       {{"id", "of the answer"},
        {"object", "chat.completion, in a stream chat.completion.chunk"},
        {"created", "seconds since 1970"},
        {"model", "the server's name for the model"},
        {"choices", "message (in a stream delta) with content, reasoning_content, tool_calls; finish_reason, logprobs"},
        {"usage", "prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details.cached_tokens"},
        {"timings", "as of /completion"}},
       true},
      {Endpoint::kTokenize,
       "POST",
       {"/tokenize"},
       "The tokens of a text",
       true,
       true,
       fields_of_tokenize,
       kJson,
       {{"tokens", "numbers; with with_pieces objects of id and piece"}}},
      {Endpoint::kDetokenize,
       "POST",
       {"/detokenize"},
       "The text of tokens",
       true,
       true,
       fields_of_detokenize,
       kJson,
       {{"content", "the text; what is no UTF-8 is U+FFFD"}}},
      {Endpoint::kApplyTemplate,
       "POST",
       {"/apply-template"},
       "The prompt that a conversation becomes",
       true,
       true,
       fields_of_template,
       kJson,
       {{"prompt", "the text"}}},
      {Endpoint::kSlotAction,
       "POST",
       {"/slots/{id}"},
       "Saves a slot's state to a file, restores it, or erases it: ?action=save, restore or erase",
       true,
       true,
       fields_of_slot,
       kJson,
       {{"id_slot", "the slot"},
        {"filename", "the file; not of erase"},
        {"n_saved", "tokens saved"},
        {"n_written", "bytes written"},
        {"n_restored", "tokens restored"},
        {"n_read", "bytes read"},
        {"n_erased", "tokens erased"},
        {"timings", "save_ms or restore_ms"}}},
  };
}

// Whether `path` is `pattern`, and what stands for {id}.
bool matches(std::string_view pattern, std::string_view path, std::string& id) {
  constexpr std::string_view kId = "{id}";
  const size_t at = pattern.find(kId);
  if (at == std::string_view::npos) return pattern == path;
  const std::string_view front = pattern.substr(0, at);
  if (!path.starts_with(front) || path.find('/', at) != std::string_view::npos || path.size() == at) return false;
  id = path.substr(at);
  return true;
}

}  // namespace

const std::vector<Route>& routes() {
  static const std::vector<Route> table = make_routes();
  return table;
}

RouteMatch find_route(std::string_view method, std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  RouteMatch match;
  for (const Route& route : routes()) {
    if (!std::ranges::any_of(route.paths, [&](std::string_view p) { return matches(p, path, match.id); })) continue;
    if (route.method == wanted) {
      match.route = &route;
      return match;
    }
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method;
    if (route.method == "GET") match.allow += ", HEAD";
  }
  if (!match.allow.empty()) match.allow += ", OPTIONS";
  return match;
}

}  // namespace sluice::server
