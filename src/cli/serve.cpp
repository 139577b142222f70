// `sluice serve`: an HTTP server that speaks llama-server's API and OpenAI's. Listens first, then loads, so that a
// client can see how far loading is; ends by SIGTERM or SIGINT, the first of which lets answers come to their end.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system.h"
#include "cli/amounts.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/serve_options.h"
#include "engine/service.h"
#include "server/app.h"

namespace sluice::cli {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// SIGINT and SIGTERM, taken by whoever waits for them: no thread is interrupted.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set_, &old_);
  }
  ~EndSignals() { ::pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // The next one; 0 when none has come within `seconds`.
  int wait(double seconds) const {
    const auto whole = static_cast<time_t>(seconds);
    const timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
    const int signal = ::sigtimedwait(&set_, nullptr, &time);
    return signal > 0 ? signal : 0;
  }

 private:
  sigset_t set_, old_;
};

std::vector<std::string> api_keys(const ServeOptions& options) {
  std::vector<std::string> keys = options.api_keys;
  if (!options.api_key_file.empty()) {
    const std::string text = read_text_file(options.api_key_file);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string key = text.substr(begin, end - begin);
      if (key.ends_with('\r')) key.pop_back();
      if (!key.empty()) keys.push_back(std::move(key));
      begin = end + 1;
    }
    if (keys.empty())
      fail(ErrorKind::kFormat, "{}: there is no key in it; write one a line, or leave --api-key-file out",
           options.api_key_file);
  }
  return keys;
}

uint64_t cache_bytes(const ServeOptions& options) {
  if (options.cache_mib && *options.cache_mib >= 0) return static_cast<uint64_t>(*options.cache_mib) * kMiB;
  const uint64_t available = available_memory();
  return available == 0 ? 1024 * kMiB : std::min(available / 8, 8192 * kMiB);
}

EngineOptions serving_engine(const ServeOptions& options) {
  EngineOptions engine = engine_options(options.model, options.compute);
  engine.sequences = options.parallel;
  engine.cache_bytes = cache_bytes(options);
  engine.notice = [](const std::string& text) { log::warning(text); };
  return engine;
}

ServiceOptions service_options(const ServeOptions& options) {
  ServiceOptions service;
  service.queue = options.queue;
  service.loop.snapshots.limit = options.checkpoints;
  service.loop.step_seconds = options.step_ms / 1000.0;
  service.slot_folder = options.slot_folder;
  return service;
}

std::optional<std::string> chat_template(const ServeOptions& options) {
  if (!options.template_source.empty() && !options.template_file.empty())
    fail(ErrorKind::kUsage, "--chat-template and --chat-template-file both give a template; give one");
  if (!options.template_file.empty()) return read_text_file(options.template_file);
  if (!options.template_source.empty()) return options.template_source;
  return std::nullopt;
}

void log_request(const server::RequestRecord& r) {
  size_t prompt = 0, cached = 0, answer = 0;
  for (const GenerationStats& stats : r.answer.stats) {
    prompt += stats.prompt_tokens;
    cached += stats.cached_tokens;
    answer += stats.answer_tokens;
  }
  const bool bad = r.status >= 500;
  const log::Level level = bad ? log::Level::kError : log::Level::kInfo;
  const double ms = r.seconds * 1e3;
  std::string ignored = fmt::format("{}", fmt::join(r.ignored, ","));
  if (r.answer.stats.empty())
    log::write(level, "request",
               {{"id", r.id},
                {"method", r.method},
                {"path", r.path},
                {"peer", r.peer},
                {"status", r.status},
                {"ms", ms},
                {"error", r.error},
                {"field", r.field},
                {"ignored", ignored}});
  else
    log::write(level, "answer",
               {{"id", r.id},
                {"path", r.path},
                {"peer", r.peer},
                {"status", r.status},
                {"ms", ms},
                {"prompt_tokens", prompt},
                {"cached_tokens", cached},
                {"cache", name_of(r.answer.stats.back().cache_reason)},
                {"diverged_at", r.answer.stats.back().diverged_at},
                {"answer_tokens", answer},
                {"stop", r.answer.stop},
                {"error", r.error},
                {"ignored", ignored}});
  if (!r.prompt.empty()) log::info("prompt", {{"id", r.id}, {"body", r.prompt}});
}

server::AppOptions app_options(const ServeOptions& options) {
  server::AppOptions app;
  app.alias = options.alias.empty() ? std::filesystem::path(options.model.path).filename().string() : options.alias;
  app.model_path = options.model.path;
  app.version = SLUICE_VERSION;
  app.seed = options.sampling.seed;
  app.keys = api_keys(options);
  app.cors_origin = options.cors;
  app.chat_template = chat_template(options);
  app.chat.part_reasoning = options.reasoning == ServeOptions::Reasoning::kApart;
  if (options.reasoning_budget >= 0) app.chat.reasoning_tokens = static_cast<uint32_t>(options.reasoning_budget);
  if (options.max_tokens && *options.max_tokens >= 0)
    app.max_tokens = static_cast<uint32_t>(std::min<int64_t>(*options.max_tokens, UINT32_MAX));
  app.metrics = options.metrics;
  app.request_limit_s = options.request_seconds;
  app.slots = options.slots_endpoint;
  app.log_prompts = options.log_prompts;
  app.log = log_request;
  return app;
}

server::HttpOptions http_options(const ServeOptions& options) {
  server::HttpOptions http;
  http.host = options.host;
  http.port = options.port;
  http.threads = static_cast<int>(options.http_threads);
  http.read_timeout = http.write_timeout = std::chrono::seconds(options.timeout);
  return http;
}

void set_up_log(const ServeOptions& options) {
  log::set_format(options.json_log ? log::Format::kJson : log::Format::kText);
  if (options.quiet_log) log::set_level(log::Level::kError);
  if (options.verbose_log) log::set_level(log::Level::kDebug);
}

void check_slot_folder(const std::string& folder) {
  if (folder.empty() || std::filesystem::is_directory(folder)) return;
  fail(ErrorKind::kIo, "--slot-save-path {}: there is no such folder; create it first", folder);
}

class Server {
 public:
  explicit Server(const ServeOptions& options)
      : options_(options),
        app_(app_options(options)),
        http_(http_options(options), [this](std::shared_ptr<server::Exchange> e) { app_.handle(std::move(e)); }) {}

  // Until a signal ends it. The exit code.
  int run() {
    http_.start();
    log::info("listening on " + url());
    std::exception_ptr failure;
    std::atomic<bool> loaded{false};
    std::thread loader([&] {
      try {
        load();
      } catch (...) {
        failure = std::current_exception();
      }
      loaded = true;
    });
    // A model that is half loaded is left to the end of the process: nothing on disk depends on it.
    while (!loaded)
      if (signals_.wait(0.05) != 0) ::_exit(0);
    loader.join();
    if (failure) std::rethrow_exception(failure);
    while (signals_.wait(3600) == 0) {
    }
    end();
    return 0;
  }

 private:
  std::string url() const {
    const bool v6 = options_.host.find(':') != std::string::npos;
    return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", options_.host, v6 ? "]" : "", http_.port());
  }

  void load() {
    EngineOptions options = serving_engine(options_);
    engine_ = load_engine(std::move(options), [this](double share) { app_.loading(share); });
    service_ = std::make_unique<Service>(*engine_, service_options(options_));
    app_.ready(*engine_, server::generator_of(*service_), sampling_parameters(options_.sampling, *engine_));
    const MemoryPlan& plan = engine_->plan();
    log::info("ready", {{"model", options_.model.path},
                        {"load_s", engine_->load_seconds()},
                        {"slots", engine_->sequences()},
                        {"context", engine_->context_size()},
                        {"memory", human_bytes(plan.total())}});
  }

  // Answers come to their end, or after the time that is given, or a second signal, are ended.
  void end() {
    log::info("ending", {{"open", http_.open_exchanges()}, {"seconds", options_.drain_seconds}});
    app_.close();
    http_.drain();
    const double until = now_seconds() + options_.drain_seconds;
    while (http_.open_exchanges() > 0 && now_seconds() < until)
      if (signals_.wait(0.05) != 0) break;
    service_->stop();  // what is left ends with a reason
    const double last = now_seconds() + 1;
    while (http_.open_exchanges() > 0 && now_seconds() < last) signals_.wait(0.02);
    http_.stop();
    log::info("ended");
  }

  const ServeOptions& options_;
  EndSignals signals_;  // before any thread starts
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Service> service_;
  server::App app_;
  server::HttpServer http_;
};

int serve(const ServeOptions& options) {
  set_up_log(options);
  check_slot_folder(options.slot_folder);
  ModelFile::open(engine_options(options.model, options.compute));  // what can't be loaded is said before listening
  return Server(options).run();
}

}  // namespace

Command serve_command() {
  return make_command<ServeOptions>(
      {.name = "serve",
       .summary = "answer over HTTP, as llama-server and OpenAI do",
       .description =
           "Listens on 127.0.0.1:8080 and answers /v1/chat/completions, /v1/completions, /completion and more "
           "(docs/api.md). Answers are computed side by side, and what an earlier request has in common with "
           "a new one is not computed again. SIGTERM lets running answers end; a second one doesn't.",
       .usage = {"-m MODEL [--host ADDRESS] [--port N] [-np N] [-c N]"},
       .examples = {{"sluice serve -m model.gguf", "answer on this machine"},
                    {"sluice serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt", "answer on the network"}}},
      serve);
}

}  // namespace sluice::cli
