// The options of `sluice serve`: names and meanings are llama-server's where it has them.
#include "cli/serve_options.h"

namespace sluice::cli {

namespace {

// Options of features that are not there yet: their command lines start, and say what is done instead.
void declare_later_options(OptionTable& table) {
  const char* no_drafter = "there is no speculation yet: every token is computed by the model itself";
  table.group("Not there yet");
  table.accept("-md, --spec-draft-model, --model-draft", "FILE", no_drafter);
  table.accept("--spec-type", "TYPE", no_drafter, {.env = "SPEC_TYPE"});
  table.accept("--spec-dflash-cross-ctx", "N", no_drafter);
  table.accept("-ngld, --spec-draft-ngl, --gpu-layers-draft, --n-gpu-layers-draft", "N", no_drafter);
  table.accept("-devd, --spec-draft-device, --device-draft", "NAME", no_drafter);
  table.accept("--draft-max, --draft, --draft-n, --spec-draft-n-max", "N", no_drafter);
  table.accept("--draft-min, --draft-n-min, --spec-draft-n-min", "N", no_drafter);
  table.accept("--draft-p-min, --spec-draft-p-min", "P", no_drafter);
}

void declare_server_accepted_options(OptionTable& table) {
  const char* always_batched = "answers are always computed side by side; this option changes nothing";
  const char* by_prefix =
      "what is reused is the longest prefix that any slot or kept state has; this option changes nothing";
  table.group("Accepted for compatibility");
  table.accept("-cb, --cont-batching | -nocb, --no-cont-batching", "", always_batched);
  table.accept("-sps, --slot-prompt-similarity", "P", by_prefix);
  table.accept("--cache-reuse", "N", by_prefix);
  table.accept("--cache-prompt | --no-cache-prompt", "",
               "requests say whether they use the prompt cache (cache_prompt); this option changes nothing");
  table.accept("--context-shift | --no-context-shift", "",
               "an answer ends when the context is full, nothing is shifted out of it; this option changes nothing");
  table.accept("--webui | --no-webui", "", "there is no web interface; this option changes nothing");
  table.accept("--spm-infill", "", "there is no infill endpoint; this option changes nothing");
}

}  // namespace

void ServeOptions::declare(OptionTable& table) {
  model.declare(table);
  table.group("Server");
  table.option("--host", "ADDRESS", "address to listen on; 0.0.0.0: every one of this machine", &host, {.env = "HOST"});
  table.option("--port", "N", "port to listen on; 0: any free one", &port, {.env = "PORT"});
  table.option("--api-key", "KEY", "requests must bring this key; several with several options", &api_keys,
               {.env = "API_KEY"});
  table.option("--api-key-file", "FILE", "keys, one a line", &api_key_file, {.env = "API_KEY_FILE"});
  table.option("-a, --alias", "NAME", "what the model is called in answers", &alias,
               {.env = "ALIAS", .default_text = "the file's name"});
  table.option("--cors", "ORIGIN", "let pages of this origin use the server from a browser; *: of any", &cors,
               {.env = "CORS", .default_text = "none"});
  table.option("-to, --timeout", "SECONDS", "for a client to send its request, and to take what is written", &timeout,
               {.env = "TIMEOUT", .min = 1});
  table.option("--threads-http", "N", "threads that read and write for clients", &http_threads,
               {.env = "THREADS_HTTP", .min = 1, .max = 64});
  table.option("--drain-timeout", "SECONDS", "at the end (SIGTERM), how long running answers may go on", &drain_seconds,
               {.env = "DRAIN_TIMEOUT", .min = 0});
  table.option("--config", "FILE", "options from a file, a line each: name = value", &config);
  table.flag("--metrics", "give metrics at /metrics (Prometheus)", &metrics, {.env = "ENDPOINT_METRICS"});
  table.flag("--slots | --no-slots", "show what each slot does at /slots", &slots_endpoint, {.env = "ENDPOINT_SLOTS"});
  table.group("Answers");
  table.option("-np, --parallel", "N", "answers that are computed side by side", &parallel,
               {.env = "N_PARALLEL", .min = 1, .max = 256});
  table.option("--queue", "N", "requests that may wait for their turn; more are answered with 503", &queue,
               {.env = "QUEUE", .min = 1});
  table.option("--request-timeout", "SECONDS", "for a whole answer, waiting included; 0: no limit", &request_seconds,
               {.env = "REQUEST_TIMEOUT", .min = 0});
  table.option("--step-ms", "N", "milliseconds that a running answer may be kept waiting by another one's prompt",
               &step_ms, {.env = "STEP_MS", .min = 1});
  table.option("-n, --predict, --n-predict", "N", "tokens of an answer whose request doesn't say; -1: no limit",
               &max_tokens, {.env = "N_PREDICT", .min = -1, .default_text = "-1"});
  table.option("--chat-template", "TEXT", "use this chat template instead of the model file's", &template_source,
               {.env = "CHAT_TEMPLATE"});
  table.option("--chat-template-file", "FILE", "the same, from a file", &template_file, {.env = "CHAT_TEMPLATE_FILE"});
  table.choice("--reasoning-format", "FORMAT",
               "deepseek (or auto): reasoning apart, in reasoning_content; none: left in the content", &reasoning,
               {{"deepseek", Reasoning::kApart}, {"auto", Reasoning::kApart}, {"none", Reasoning::kInContent}},
               {.env = "REASONING_FORMAT"});
  table.option("--reasoning-budget", "N", "tokens of reasoning in one answer; 0: none, -1: no limit", &reasoning_budget,
               {.env = "REASONING_BUDGET", .min = -1});
  table.group("Prompt cache");
  table.option("-cram, --cache-ram", "MIB", "memory for states of earlier prompts, in MiB; 0: none; -1: as for auto",
               &cache_mib,
               {.env = "CACHE_RAM", .min = -1, .default_text = "an eighth of what is available, up to 8192"});
  table.option("--ctx-checkpoints, --swa-checkpoints", "N", "states kept of one prompt, at most", &checkpoints,
               {.env = "CTX_CHECKPOINTS"});
  table.option("--slot-save-path", "DIR", "folder for slots that are saved; without it none can be", &slot_folder,
               {.env = "SLOT_SAVE_PATH"});
  table.group("Log");
  table.choice("--log-format", "FORMAT", "text, or json: an object a line", &json_log,
               {{"text", false}, {"json", true}}, {.env = "LOG_FORMAT"});
  table.flag("--log-prompts", "write prompts and answers to the log too", &log_prompts);
  table.flag("--log-disable", "write errors only", &quiet_log);
  table.flag("-v, --verbose, --log-verbose", "write more", &verbose_log);
  sampling.declare(table);
  compute.declare(table);
  declare_later_options(table);
  declare_accepted_options(table);
  declare_server_accepted_options(table);
}

}  // namespace sluice::cli
