#include "server/request.h"

#include <fmt/core.h>

#include <algorithm>

#include "server/api_error.h"
#include "server/sampling_request.h"

namespace sluice::server {

namespace {

using jinja::Type;
using jinja::Value;

std::optional<int64_t> first_of(const Fields& fields, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (const auto value = fields.integer(name)) return value;
  return std::nullopt;
}

int32_t read_token(std::string_view field, const Value& value, size_t index, const chat::Tokenizer& tokenizer) {
  const std::optional<int64_t> id = as_integer(value);
  if (!id) bad_field(field, fmt::format("item {} must be a token's number or a text", index));
  if (*id < 0 || *id > INT32_MAX || !tokenizer.contains(static_cast<int32_t>(*id)))
    bad_field(field,
              fmt::format("item {}: token {}: the vocabulary has tokens 0 to {}", index, *id, tokenizer.size() - 1));
  return static_cast<int32_t>(*id);
}

Prompt read_prompt(const Value& value, const RequestContext& context) {
  Prompt prompt;
  prompt.tokens = read_tokens("prompt", value, context.tokenizer, /*add_bos=*/true, /*parse_special=*/true);
  check_length(prompt.tokens, context);
  prompt.text = value.is_string() ? value.text() : context.tokenizer.decode(prompt.tokens, /*skip_control=*/false);
  return prompt;
}

// A list that is one prompt: of tokens, or of tokens and texts. A list of texts alone is one prompt each.
bool is_one_prompt(const std::vector<Value>& items) {
  const auto is_token = [](const Value& item) { return item.is_number() && !item.is(Type::kBool); };
  return std::ranges::any_of(items, is_token) &&
         std::ranges::all_of(items, [&](const Value& item) { return is_token(item) || item.is_string(); });
}

std::vector<std::string> read_response_fields(const Fields& fields, const RequestLimits& limits) {
  std::vector<std::string> out;
  const Value* list = fields.find("response_fields");
  if (list == nullptr) return out;
  for (const Value& item : list->items()) {
    if (!item.is_string() || item.text().size() > limits.name_bytes || out.size() == 256)
      bad_field("response_fields",
                fmt::format("must be a list of at most 256 names of at most {} bytes", limits.name_bytes));
    out.push_back(item.text());
  }
  return out;
}

void check_answers(const CompletionRequest& request, const RequestLimits& limits) {
  const size_t answers = request.prompts.size() * request.options.choices;
  if (answers > limits.answers)
    bad_field("prompt", fmt::format("{} prompts with {} answers each; the limit is {} answers", request.prompts.size(),
                                    request.options.choices, limits.answers));
}

CompletionRequest read_common(const Fields& fields, const RequestContext& context) {
  CompletionRequest request;
  request.generation = read_generation(fields, context);
  request.options = read_answer_options(fields);
  request.prompts = read_prompts(*fields.find("prompt"), context);
  check_answers(request, context.limits);
  return request;
}

}  // namespace

std::vector<int32_t> read_tokens(std::string_view field, const Value& value, const chat::Tokenizer& tokenizer,
                                 bool add_bos, bool parse_special) {
  std::vector<int32_t> tokens;
  const auto add_text = [&](const std::string& text) {
    const std::vector<int32_t> part = tokenizer.encode(text, parse_special);
    const bool wanted = add_bos && tokens.empty() && tokenizer.add_bos() && tokenizer.bos().has_value();
    if (wanted && (part.empty() || part[0] != *tokenizer.bos())) tokens.push_back(*tokenizer.bos());
    tokens.insert(tokens.end(), part.begin(), part.end());
  };
  if (value.is_string()) {
    add_text(value.text());
    return tokens;
  }
  if (!value.is(Type::kList)) bad_field(field, "must be a text or a list of texts and tokens");
  const std::vector<Value>& items = value.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].is_string()) {
      add_text(items[i].text());
    } else {
      tokens.push_back(read_token(field, items[i], i, tokenizer));
    }
  }
  return tokens;
}

void check_length(const std::vector<int32_t>& prompt, const RequestContext& context) {
  if (prompt.empty()) bad_field("prompt", "is empty: there is nothing to go on from");
  if (prompt.size() >= context.context) throw too_long(prompt.size(), context.context);
}

std::vector<Prompt> read_prompts(const Value& value, const RequestContext& context) {
  if (value.is_string() || is_one_prompt(value.items())) return {read_prompt(value, context)};
  if (value.items().empty()) bad_field("prompt", "is empty: there is nothing to go on from");
  if (value.items().size() > context.limits.answers)
    bad_field("prompt", fmt::format("{} prompts; the limit is {}", value.items().size(), context.limits.answers));
  std::vector<Prompt> prompts;
  for (const Value& item : value.items()) prompts.push_back(read_prompt(item, context));
  return prompts;
}

GenerationRequest read_generation(const Fields& fields, const RequestContext& context) {
  GenerationRequest request;
  request.sampling = read_sampling(fields, context);
  request.stop_strings = read_stop_strings(fields, context.limits);
  request.max_tokens = context.max_tokens;
  if (const auto given = first_of(fields, {"n_predict", "max_completion_tokens", "max_tokens"}))
    request.max_tokens = *given < 0 ? UINT32_MAX : static_cast<uint32_t>(*given);
  request.ignore_end = fields.flag("ignore_eos", false);
  request.use_cache = fields.flag("cache_prompt", true);
  if (const auto slot = fields.integer("id_slot"); slot && *slot >= 0) {
    if (*slot >= context.slots)
      bad_field("id_slot", fmt::format("{}: there are slots 0 to {}", *slot, context.slots - 1));
    request.slot = static_cast<uint32_t>(*slot);
  }
  if (const auto limit = fields.integer("t_max_predict_ms")) request.answer_limit_s = static_cast<double>(*limit) / 1e3;
  return request;
}

AnswerOptions read_answer_options(const Fields& fields) {
  AnswerOptions options;
  options.stream = fields.flag("stream", false);
  options.timings_per_token = fields.flag("timings_per_token", false);
  options.return_progress = fields.flag("return_progress", false);
  options.return_tokens = fields.flag("return_tokens", false);
  options.choices = static_cast<uint32_t>(first_of(fields, {"n", "n_cmpl"}).value_or(1));
  if (const Value* stream = fields.find("stream_options")) {
    const Value* usage = stream->as_dict().find(std::string_view("include_usage"));
    if (usage != nullptr && !usage->is_none() && !usage->is(Type::kBool))
      bad_field("stream_options", "include_usage must be boolean");
    options.include_usage = usage != nullptr && usage->is(Type::kBool) && usage->as_bool();
  }
  if (const auto seconds = fields.integer("sse_ping_interval"))
    options.keep_alive = std::chrono::seconds(std::max<int64_t>(0, *seconds));
  return options;
}

CompletionRequest read_completion(const Fields& fields, const RequestContext& context) {
  CompletionRequest request = read_common(fields, context);
  request.options.response_fields = read_response_fields(fields, context.limits);
  if (const int64_t n = first_of(fields, {"n_probs", "logprobs"}).value_or(0); n > 0)
    request.generation.n_likely = static_cast<uint32_t>(n);
  return request;
}

CompletionRequest read_openai_completion(const Fields& fields, const RequestContext& context) {
  CompletionRequest request = read_common(fields, context);
  if (const auto n = first_of(fields, {"logprobs", "n_probs"})) request.generation.n_likely = static_cast<uint32_t>(*n);
  request.options.echo = fields.flag("echo", false);
  if (request.options.echo && request.generation.n_likely)
    bad_field("echo", "with logprobs, those of the prompt would be needed, which are not computed");
  return request;
}

}  // namespace sluice::server
