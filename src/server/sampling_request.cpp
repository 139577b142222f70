#include "server/sampling_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "server/api_error.h"

namespace sluice::server {

namespace {

using jinja::Type;
using jinja::Value;

uint64_t random_seed() {
  std::random_device device;
  return device();  // 32 bits, as llama-server's seeds, so that a client can send it back
}

float read_bias(const Value& value) {
  if (value.is(Type::kBool) && !value.as_bool()) return -std::numeric_limits<float>::infinity();
  if (!value.is_number() || value.is(Type::kBool) || !(std::abs(value.as_double()) <= 1e6))
    bad_field("logit_bias", "a bias must be a number between -1e6 and 1e6, or false");
  return static_cast<float>(value.as_double());
}

void add_bias(std::vector<std::pair<int32_t, float>>& out, int64_t id, float bias, const chat::Tokenizer& tokenizer) {
  if (id < 0 || id > INT32_MAX || !tokenizer.contains(static_cast<int32_t>(id)))
    bad_field("logit_bias", fmt::format("token {}: the vocabulary has tokens 0 to {}", id, tokenizer.size() - 1));
  out.emplace_back(static_cast<int32_t>(id), bias);
}

// A key or the first of a pair: the number of a token, or a text, all tokens of which get the bias.
void add_bias(std::vector<std::pair<int32_t, float>>& out, const Value& which, bool digits_are_id, float bias,
              const chat::Tokenizer& tokenizer) {
  if (const std::optional<int64_t> id = as_integer(which)) return add_bias(out, *id, bias, tokenizer);
  if (!which.is_string()) bad_field("logit_bias", "what gets a bias must be a token's number or a text");
  const std::string& text = which.text();
  int64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (digits_are_id && error == std::errc() && end == text.data() + text.size())
    return add_bias(out, id, bias, tokenizer);
  for (const int32_t token : tokenizer.encode(text, /*parse_special=*/false)) out.emplace_back(token, bias);
}

std::vector<std::pair<int32_t, float>> read_logit_bias(const Value& value, const RequestContext& context) {
  std::vector<std::pair<int32_t, float>> out;
  const size_t count = value.is(Type::kDict) ? value.as_dict().size() : value.items().size();
  const auto check_count = [&](size_t n) {
    if (n > context.limits.logit_biases)
      bad_field("logit_bias", fmt::format("{} biases; the limit is {}", n, context.limits.logit_biases));
  };
  check_count(count);
  if (value.is(Type::kDict)) {
    for (const auto& [key, bias] : value.as_dict().entries()) {
      add_bias(out, key, /*digits_are_id=*/true, read_bias(bias), context.tokenizer);
      check_count(out.size());
    }
    return out;
  }
  for (const Value& pair : value.items()) {
    if (!pair.is(Type::kList) || pair.items().size() != 2)
      bad_field("logit_bias", "an item must be a list of two: a token or a text, and its bias");
    add_bias(out, pair.items()[0], /*digits_are_id=*/false, read_bias(pair.items()[1]), context.tokenizer);
    check_count(out.size());
  }
  return out;
}

// llama-server's names, and the letters of its short form. The order of those that there are is the order of ours.
struct Step {
  std::string_view name, other_name;
  char letter;
  int place;  // -1: not there, and off in any request that gets here
};
constexpr std::array kSteps{Step{"penalties", "penalties", 'e', 0},
                            Step{"top_k", "top-k", 'k', 1},
                            Step{"top_p", "top-p", 'p', 2},
                            Step{"min_p", "min-p", 'm', 3},
                            Step{"temperature", "temp", 't', 4},
                            Step{"dry", "dry", 'd', -1},
                            Step{"typ_p", "typical_p", 'y', -1},
                            Step{"xtc", "xtc", 'x', -1},
                            Step{"top_n_sigma", "top-n-sigma", 's', -1}};

std::vector<const Step*> read_steps(const Value& value) {
  std::vector<const Step*> steps;
  const auto add = [&](const auto& matches, const std::string& shown) {
    const auto at = std::ranges::find_if(kSteps, matches);
    if (at == kSteps.end()) bad_field("samplers", fmt::format("{} is not known", shown.substr(0, 32)));
    if (at->place >= 0) steps.push_back(&*at);
  };
  if (value.is_string()) {
    for (const char c : value.text())
      add([c](const Step& step) { return step.letter == c; }, "a step of another letter than ekpmtdyxs");
    return steps;
  }
  for (const Value& item : value.items()) {
    if (!item.is_string()) bad_field("samplers", "must be a list of names");
    add([&](const Step& step) { return step.name == item.text() || step.other_name == item.text(); }, item.text());
  }
  return steps;
}

// Steps that are not named are switched off; others must come in our order.
void apply_steps(const Value& value, decode::SamplingParameters& p) {
  std::array<bool, 5> named{};
  int last = -1;
  for (const Step* step : read_steps(value)) {
    if (step->place <= last)
      bad_field("samplers", "the order must be penalties, top_k, top_p, min_p, temperature, each at most once");
    last = step->place;
    named[static_cast<size_t>(last)] = true;
  }
  if (!named[0]) p.repeat_penalty = 1, p.presence_penalty = 0, p.frequency_penalty = 0;
  if (!named[1]) p.top_k = 0;
  if (!named[2]) p.top_p = 1;
  if (!named[3]) p.min_p = 0;
  if (!named[4]) p.temperature = 1;
}

}  // namespace

decode::SamplingParameters read_sampling(const Fields& fields, const RequestContext& context) {
  decode::SamplingParameters p = context.sampling;
  const auto read = [&](std::string_view name, float& value) {
    if (const std::optional<double> given = fields.number(name)) value = static_cast<float>(*given);
  };
  read("temperature", p.temperature);
  if (!std::isfinite(p.temperature)) bad_field("temperature", "is too large");
  read("top_p", p.top_p);
  read("min_p", p.min_p);
  read("repeat_penalty", p.repeat_penalty);
  read("presence_penalty", p.presence_penalty);
  read("frequency_penalty", p.frequency_penalty);
  if (const auto top_k = fields.integer("top_k")) p.top_k = static_cast<uint32_t>(*top_k);
  if (const auto window = fields.integer("repeat_last_n"))
    p.penalty_window = *window < 0 ? UINT32_MAX : static_cast<uint32_t>(*window);
  if (const Value* bias = fields.find("logit_bias")) p.logit_bias = read_logit_bias(*bias, context);
  if (const Value* samplers = fields.find("samplers")) apply_steps(*samplers, p);
  // llama-server writes "a random one" as -1, or as that in 32 bits.
  const std::optional<int64_t> seed = fields.integer("seed");
  const bool given = seed && *seed != -1 && *seed != UINT32_MAX;
  p.seed = given ? static_cast<uint64_t>(*seed) : context.seed ? *context.seed : random_seed();
  return p;
}

std::vector<std::string> read_stop_strings(const Fields& fields, const RequestLimits& limits) {
  std::vector<std::string> out;
  const Value* stop = fields.find("stop");
  if (stop == nullptr) return out;
  const auto add = [&](const Value& item) {
    if (!item.is_string()) bad_field("stop", "must be a string or a list of strings");
    if (item.text().size() > limits.stop_bytes)
      bad_field("stop", fmt::format("a string has {} bytes; the limit is {}", item.text().size(), limits.stop_bytes));
    if (!item.text().empty()) out.push_back(item.text());
  };
  if (stop->is_string()) {
    add(*stop);
    return out;
  }
  if (stop->items().size() > limits.stop_strings)
    bad_field("stop", fmt::format("{} strings; the limit is {}", stop->items().size(), limits.stop_strings));
  for (const Value& item : stop->items()) add(item);
  return out;
}

}  // namespace sluice::server
