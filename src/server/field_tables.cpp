// Every field of every endpoint. Names and meanings are llama-server's and OpenAI's.
#include "server/fields.h"

namespace sluice::server {

namespace {

using jinja::Type;
using jinja::Value;

bool is_empty(const Value& value) {
  if (value.is_string()) return value.text().empty();
  if (value.is(Type::kList)) return value.items().empty();
  return value.is(Type::kDict) && value.as_dict().size() == 0;
}
bool is_zero(const Value& value) { return value.is_number() && value.as_double() == 0; }
bool is_one(const Value& value) { return value.is_number() && value.as_double() == 1; }
bool is_below_zero(const Value& value) { return value.is_number() && value.as_double() < 0; }
bool is_not_above_zero(const Value& value) { return value.is_number() && value.as_double() <= 0; }
bool is_not_above_one(const Value& value) { return value.is_number() && value.as_double() <= 1; }
bool is_false(const Value& value) { return value.is(Type::kBool) && !value.as_bool(); }
bool is_text_format(const Value& value) {
  if (!value.is(Type::kDict)) return false;
  const Value* type = value.as_dict().find(std::string_view("type"));
  return type != nullptr && type->is_string() && type->text() == "text";
}
bool is_text_alone(const Value& value) {
  return value.is(Type::kList) && value.items().size() == 1 && value.items()[0].is_string() &&
         value.items()[0].text() == "text";
}

constexpr double kMaxInt = 2147483647.0;

constexpr Field taken(std::string_view name, JsonTypes types, std::string_view text, std::optional<double> minimum = {},
                      std::optional<double> maximum = {}) {
  return {name, types, text, minimum, maximum};
}
constexpr Field required(std::string_view name, JsonTypes types, std::string_view text) {
  return {name, types, text, {}, {}, FieldUse::kTaken, true};
}
constexpr Field refused(std::string_view name, JsonTypes types, std::string_view text, bool (*neutral)(const Value&)) {
  return {name, types, text, {}, {}, FieldUse::kRefused, false, neutral};
}
constexpr Field ignored(std::string_view name, std::string_view text) {
  return {name, kAnything, text, {}, {}, FieldUse::kIgnored};
}

constexpr Field kSampling[] = {
    taken("temperature", kNumber, "0: always the likeliest token", 0),
    taken("top_k", kInteger, "only so many of the likeliest tokens; 0: all", 0, kMaxInt),
    taken("top_p", kNumber, "only the likeliest tokens that reach this probability together; 1: all", 0, 1),
    taken("min_p", kNumber, "only tokens with at least this share of the likeliest one's probability; 0: all", 0, 1),
    taken("repeat_penalty", kNumber, "above 1: tokens of the last repeat_last_n become less likely", 1e-6, 1e6),
    taken("repeat_last_n", kInteger, "last tokens that the penalties look at; 0: none, -1: all", -1, kMaxInt),
    taken("presence_penalty", kNumber, "subtracted once for each token among them", -1e6, 1e6),
    taken("frequency_penalty", kNumber, "subtracted for every time that it occurs there", -1e6, 1e6),
    taken("logit_bias", kArray | kObject,
          "added to logits: [[id, bias], ...], [[text, bias], ...] or {\"id or text\": bias}; false: never this token"),
    taken("seed", kInteger, "of the random numbers; -1: another one each time"),
    taken("samplers", kArray | kString,
          "steps of sampling, in the order penalties, top_k, top_p, min_p, temperature; those left out are off"),
    taken("stop", kString | kArray, "strings that end the answer and are not part of it"),
    taken("ignore_eos", kBoolean, "go on after an end-of-text token"),
    refused("grammar", kString, "answers can't be held to a grammar yet", is_empty),
    refused("json_schema", kObject, "answers can't be held to a schema yet", is_empty),
    refused("mirostat", kInteger, "there is no Mirostat sampling", is_zero),
    refused("typical_p", kNumber, "there is no locally typical sampling", is_one),
    refused("dry_multiplier", kNumber, "there is no DRY penalty", is_zero),
    refused("xtc_probability", kNumber, "there is no XTC sampling", is_zero),
    refused("dynatemp_range", kNumber, "there is no dynamic temperature", is_zero),
    refused("top_n_sigma", kNumber, "there is no top-n-sigma sampling", is_not_above_zero),
    refused("adaptive_target", kNumber, "there is no adaptive sampling", is_below_zero),
    refused("min_keep", kInteger, "samplers keep as many tokens as they say", is_not_above_one),
    refused("post_sampling_probs", kBoolean, "probabilities are the model's own, before sampling", is_false),
    refused("lora", kArray, "there are no adapters", is_empty),
    refused("n_discard", kInteger, "a context that is full is not shifted: the answer ends", is_not_above_zero),
    ignored("mirostat_tau", "of Mirostat sampling"),
    ignored("mirostat_eta", "of Mirostat sampling"),
    ignored("dry_base", "of the DRY penalty"),
    ignored("dry_allowed_length", "of the DRY penalty"),
    ignored("dry_penalty_last_n", "of the DRY penalty"),
    ignored("dry_sequence_breakers", "of the DRY penalty"),
    ignored("xtc_threshold", "of XTC sampling"),
    ignored("dynatemp_exponent", "of dynamic temperature"),
    ignored("adaptive_decay", "of adaptive sampling"),
    ignored("n_keep", "a context that is full is not shifted"),
    ignored("n_cache_reuse", "what can be reused is"),
    ignored("backend_sampling", "where sampling is computed changes nothing"),
    ignored("penalize_nl", "a newline is a token like others"),
    ignored("tfs_z", "gone from llama-server too"),
    ignored("grammar_lazy", "of grammars"),
    ignored("grammar_triggers", "of grammars"),
    ignored("preserved_tokens", "of grammars"),
};

constexpr Field kAnswer[] = {
    taken("stream", kBoolean, "answer in server-sent events"),
    taken("stream_options", kObject, "{\"include_usage\": true}: a last event with the usage"),
    taken("max_tokens", kInteger, "tokens of the answer, at most; -1: until it ends", -1, kMaxInt),
    taken("max_completion_tokens", kInteger, "the same", -1, kMaxInt),
    taken("n_predict", kInteger, "the same", -1, kMaxInt),
    taken("n", kInteger, "answers to each prompt, side by side", 1, 64),
    taken("n_cmpl", kInteger, "the same", 1, 64),
    taken("cache_prompt", kBoolean, "take and leave states in the prompt cache (default: true)"),
    taken("id_slot", kInteger, "compute in this slot only; -1: any", -1, kMaxInt),
    taken("timings_per_token", kBoolean, "timings with every event"),
    taken("return_progress", kBoolean, "events that tell how much of the prompt is done"),
    taken("return_tokens", kBoolean, "the tokens of the answer too"),
    taken("t_max_predict_ms", kInteger, "end so long after the first token; 0: never", 0, kMaxInt),
    taken("sse_ping_interval", kInteger, "seconds of silence after which a stream gets a comment; -1: never", -1, 3600),
    ignored("model", "the server has one"),
    ignored("user", "who asks changes nothing"),
    ignored("metadata", "for the client's own use"),
    ignored("store", "nothing is stored"),
    ignored("service_tier", "all requests are alike"),
    ignored("safety_identifier", "who asks changes nothing"),
    ignored("prompt_cache_key", "the prompt cache finds what is alike by itself"),
    ignored("prompt_cache_retention", "the prompt cache drops what is worth least"),
    ignored("n_indent", "of infill"),
    ignored("verbose", "answers hold what there is to say"),
};

constexpr Field kCompletion[] = {
    required("prompt", kString | kArray,
             "a text, a list of tokens, a list of both, or a list of such prompts that are answered side by side"),
    taken("n_probs", kInteger, "with each token, so many of the likeliest ones", 0, 1000),
    taken("logprobs", kInteger, "the same", 0, 1000),
    taken("response_fields", kArray, "only these members of the answer; a/b: member b of a"),
    refused("image_data", kArray, "the server takes no images", is_empty),
    refused("multimodal_data", kArray, "the server takes no images", is_empty),
};

constexpr Field kOpenAiCompletion[] = {
    required("prompt", kString | kArray,
             "a text, a list of tokens, a list of both, or a list of such prompts that are answered side by side"),
    taken("logprobs", kInteger, "with each token, so many of the likeliest ones", 0, 1000),
    taken("n_probs", kInteger, "the same", 0, 1000),
    taken("echo", kBoolean, "the answer's text begins with the prompt"),
    refused("suffix", kString, "text can't be filled into the middle of another", is_empty),
    refused("best_of", kInteger, "answers aren't weighed against each other: see n", is_one),
    refused("response_format", kObject, "answers can't be held to a format yet", is_text_format),
};

constexpr Field kTemplate[] = {
    required("messages", kArray, "the conversation: objects with role and content"),
    taken("tools", kArray, "functions that the model may call"),
    taken("tool_choice", kString | kObject,
          "auto, none, required, or {\"type\": \"function\", \"function\": {\"name\"}}"),
    taken("parallel_tool_calls", kBoolean, "false: an answer has one call at most"),
    taken("chat_template_kwargs", kObject, "variables of the template, such as enable_thinking"),
    taken("enable_thinking", kBoolean, "whether a thinking model thinks first; where left out the template chooses"),
    taken("reasoning_effort", kString, "none: the model doesn't think; else a variable of the template"),
    taken("add_generation_prompt", kBoolean, "end the prompt with the opening of an answer (default: true)"),
    taken("continue_final_message", kBoolean, "the answer goes on with the assistant's message at the end"),
    refused("functions", kArray, "deprecated: see tools", is_empty),
    refused("function_call", kString | kObject, "deprecated: see tool_choice", is_empty),
    refused("response_format", kObject, "answers can't be held to a format yet", is_text_format),
    refused("modalities", kArray, "the model writes text only", is_text_alone),
    refused("audio", kObject, "the model writes text only", is_empty),
    refused("web_search_options", kObject, "the server reaches no network", nullptr),
    ignored("prediction", "changes no answer"),
    ignored("verbosity", "the model doesn't know of it"),
};

constexpr Field kChat[] = {
    taken("logprobs", kBoolean, "each token's own log-probability"),
    taken("top_logprobs", kInteger, "and so many of the likeliest ones", 0, 1000),
    taken("n_probs", kInteger, "the same as both", 0, 1000),
    taken("reasoning_format", kString,
          "none: reasoning stays in content; deepseek or auto: reasoning_content holds it"),
    taken("reasoning_budget_tokens", kInteger, "thinking is cut short after so many tokens; -1: never", -1, kMaxInt),
    taken("thinking_budget_tokens", kInteger, "the same", -1, kMaxInt),
    ignored("parse_tool_calls", "calls are parsed where there are tools"),
    ignored("echo", "of /v1/completions"),
};

constexpr Field kTokenize[] = {
    required("content", kString | kArray, "a text, or a list of texts and tokens"),
    taken("add_special", kBoolean, "put the token in front that begins a text, where the model wants one"),
    taken("parse_special", kBoolean, "the text of a control token becomes that token (default: true)"),
    taken("with_pieces", kBoolean, "each token's text too; bytes, where it is no UTF-8"),
};

constexpr Field kDetokenize[] = {
    required("tokens", kArray, "a list of tokens"),
};

constexpr Field kSlot[] = {
    taken("filename", kString, "of save and restore: a file's name without folders"),
};

}  // namespace

const FieldTable& completion_fields() {
  static const FieldTable table{kCompletion, kAnswer, kSampling};
  return table;
}

const FieldTable& openai_completion_fields() {
  static const FieldTable table{kOpenAiCompletion, kAnswer, kSampling};
  return table;
}

const FieldTable& chat_fields() {
  static const FieldTable table{kTemplate, kChat, kAnswer, kSampling};
  return table;
}

const FieldTable& template_fields() {
  static const FieldTable table{kTemplate};
  return table;
}

const FieldTable& tokenize_fields() {
  static const FieldTable table{kTokenize};
  return table;
}

const FieldTable& detokenize_fields() {
  static const FieldTable table{kDetokenize};
  return table;
}

const FieldTable& slot_fields() {
  static const FieldTable table{kSlot};
  return table;
}

}  // namespace sluice::server
