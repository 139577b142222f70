// Prometheus' text format. Names are llama-server's where they mean the same, Sluice's own for the rest.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "server/info.h"

namespace sluice::server {

namespace {

class Metrics {
 public:
  void counter(std::string_view name, std::string_view help, double value) { add("counter", name, help, value); }
  void gauge(std::string_view name, std::string_view help, double value) { add("gauge", name, help, value); }
  void head(std::string_view type, std::string_view name, std::string_view help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  void labelled(std::string_view name, std::string_view label, std::string_view value, double number) {
    fmt::format_to(std::back_inserter(text_), "{}{{{}=\"{}\"}} {}\n", name, label, value, number);
  }
  std::string take() { return std::move(text_); }

 private:
  void add(std::string_view type, std::string_view name, std::string_view help, double value) {
    head(type, name, help);
    fmt::format_to(std::back_inserter(text_), "{} {}\n", name, value);
  }
  std::string text_;
};

double as_double(uint64_t n) { return static_cast<double>(n); }
double rate(uint64_t tokens, double seconds) { return seconds > 0 ? as_double(tokens) / seconds : 0.0; }

void add_llama_names(Metrics& out, const ServiceStatus& status) {
  const ServiceCounters& c = status.counters;
  const auto busy = std::ranges::count_if(status.slots, &SlotStatus::busy);
  out.counter("llamacpp:prompt_tokens_total", "Tokens of prompts that were computed.", as_double(c.prompt_tokens));
  out.counter("llamacpp:prompt_tokens_cached_total", "Tokens of prompts that the cache had.",
              as_double(c.cached_tokens));
  out.counter("llamacpp:prompt_seconds_total", "Seconds in steps that computed prompts.", c.prompt_seconds);
  out.counter("llamacpp:tokens_predicted_total", "Tokens of answers.", as_double(c.answer_tokens));
  out.counter("llamacpp:tokens_predicted_seconds_total", "Seconds in steps that computed answers alone.",
              c.answer_seconds);
  out.counter("llamacpp:n_decode_total", "Steps of the model.", as_double(c.steps));
  out.gauge("llamacpp:prompt_tokens_seconds", "Tokens of prompts a second, on average.",
            rate(c.prompt_tokens, c.prompt_seconds));
  out.gauge("llamacpp:predicted_tokens_seconds", "Tokens of answers a second, on average.",
            rate(c.answer_tokens, c.prompt_seconds + c.answer_seconds));
  out.gauge("llamacpp:requests_processing", "Answers that are being computed.", static_cast<double>(busy));
  out.gauge("llamacpp:requests_deferred", "Answers that wait for a slot.", as_double(status.queued));
}

void add_own_names(Metrics& out, const Engine& engine, const ServiceStatus& status) {
  const ServiceCounters& c = status.counters;
  out.counter("sluice_answers_total", "Answers asked for.", as_double(c.requests));
  out.counter("sluice_answers_finished_total", "Answers that came to their end.", as_double(c.finished));
  out.counter("sluice_answers_cancelled_total", "Answers whose client went away.", as_double(c.cancelled));
  out.counter("sluice_answers_failed_total", "Answers that ended with an error.", as_double(c.failed));
  out.counter("sluice_answers_refused_total", "Answers that found the queue full.", as_double(status.refused));
  out.counter("sluice_answers_preempted_total", "Answers put back into the queue while the KV cache was full.",
              as_double(c.preempted));
  out.counter("sluice_rows_total", "Rows of all steps.", as_double(c.rows));
  out.gauge("sluice_kv_pages", "Pages of the KV cache.", as_double(status.kv_pages));
  out.gauge("sluice_kv_pages_used", "Pages of the KV cache in use.", as_double(status.kv_pages_used));
  out.gauge("sluice_prompt_cache_bytes", "Limit of the prompt cache.", as_double(status.cache_bytes));
  out.gauge("sluice_prompt_cache_bytes_used", "Bytes in the prompt cache.", as_double(status.cache_bytes_used));
  out.gauge("sluice_prompt_cache_entries", "States in the prompt cache.", as_double(status.cache_entries));
  out.counter("sluice_prompt_cache_evicted_total", "States that had to make room.", as_double(status.cache_evicted));
  out.gauge("sluice_seconds_since_progress", "Since a step ended, while there is work.", status.seconds_since_progress);
  constexpr std::string_view kMemory = "sluice_memory_planned_bytes";
  out.head("gauge", kMemory, "Memory by what it is for, as planned before loading.");
  for (const MemoryPlan::Category& category : engine.plan().categories)
    out.labelled(kMemory, "category", category.name, as_double(category.bytes));
  if (engine.plan().experts == 0) return;
  out.gauge("sluice_experts", "Experts of all layers.", engine.plan().experts);
  out.gauge("sluice_experts_in_memory", "Experts that there is memory for.", engine.plan().slots);
  out.counter("sluice_expert_hits_total", "Experts that were in memory when they were needed.",
              as_double(status.experts.hits));
  out.counter("sluice_expert_misses_total", "Experts that had to be read.", as_double(status.experts.misses));
  out.counter("sluice_expert_read_bytes_total", "Bytes of experts read.", as_double(status.experts.bytes_read));
  out.counter("sluice_expert_stall_seconds_total", "Seconds in which reads were waited for.",
              status.experts.stall_seconds);
}

}  // namespace

std::string metrics_text(const Engine& engine, const ServiceStatus& status) {
  Metrics out;
  add_llama_names(out, status);
  add_own_names(out, engine, status);
  return out.take();
}

}  // namespace sluice::server
