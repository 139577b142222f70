#include "cli/engine_options.h"

#include <charconv>
#include <iostream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "cli/progress.h"

namespace sluice::cli {

EngineOptions engine_options(const ModelOptions& model, const ComputeOptions& compute) {
  if (compute.cache_keys != compute.cache_values)
    fail(ErrorKind::kUnsupported,
         "--cache-type-k and --cache-type-v differ: keys and values are cached in one type so far");
  EngineOptions options;
  options.path = model.path;
  options.overrides = model.overrides;
  options.threads = static_cast<int>(compute.threads.value_or(0));
  options.threads_batch = static_cast<int>(compute.threads_batch.value_or(0));
  options.cpus = compute.cpus;
  options.lock_memory = compute.lock_memory;
  options.context = compute.context;
  options.micro_batch = std::min(compute.batch, compute.micro_batch);
  options.cache_type = compute.cache_keys;
  options.isa = compute.isa.value_or("");
  return options;
}

std::unique_ptr<Engine> load_engine(EngineOptions options) {
  std::unique_ptr<Progress> progress;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (!progress) progress = std::make_unique<Progress>("loading", total, ProgressUnit::kBytes);
    progress->update(done);
  };
  return std::make_unique<Engine>(options);
}

namespace {

// "TOKEN+BIAS" or "TOKEN-BIAS".
std::pair<int32_t, float> parse_bias(const std::string& text) {
  int32_t token = 0;
  float bias = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, token);
  if (error == std::errc() && at != end && (*at == '+' || *at == '-')) {
    const auto [stop, bias_error] = std::from_chars(at + 1, end, bias);
    if (bias_error == std::errc() && stop == end) return {token, *at == '-' ? -bias : bias};
  }
  fail(ErrorKind::kUsage, "--logit-bias {}: write TOKEN+BIAS or TOKEN-BIAS, such as 15043-1.5", text);
}

uint64_t fresh_seed() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

}  // namespace

decode::SamplingParameters sampling_parameters(const SamplingOptions& options, const Engine& engine) {
  decode::SamplingParameters p = engine.sampling_defaults();
  p.temperature = options.temperature.value_or(p.temperature);
  p.top_k = options.top_k.value_or(p.top_k);
  p.top_p = options.top_p.value_or(p.top_p);
  p.min_p = options.min_p.value_or(p.min_p);
  p.repeat_penalty = options.repeat_penalty.value_or(p.repeat_penalty);
  p.presence_penalty = options.presence_penalty.value_or(p.presence_penalty);
  p.frequency_penalty = options.frequency_penalty.value_or(p.frequency_penalty);
  p.penalty_window = options.repeat_last_n.value_or(p.penalty_window);
  for (const std::string& bias : options.logit_bias) p.logit_bias.push_back(parse_bias(bias));
  p.seed = options.seed ? *options.seed : fresh_seed();
  return p;
}

std::string prompt_text(const std::string& text, const std::string& file) {
  if (text.empty() == file.empty())
    fail(ErrorKind::kUsage, "give the text with -p TEXT or with -f FILE (-f - reads standard input)");
  if (!text.empty()) return text;
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  return read_text_file(file);
}

}  // namespace sluice::cli
