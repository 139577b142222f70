#include "server/app.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <random>

#include "base/utf8.h"
#include "server/api_error.h"
#include "server/body.h"
#include "server/info.h"
#include "server/json.h"

namespace sluice::server {

struct App::Model {
  Engine& engine;
  std::unique_ptr<Generator> generator;
  std::unique_ptr<ChatFormat> format;  // null: there is no template
  ServerFacts facts;
  uint32_t slots;
};

// An exchange on its way through. Only one thread at a time has it.
struct App::Call {
  std::shared_ptr<Exchange> exchange;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, std::string>> headers;  // of the answer
  const Route* route = nullptr;
  std::string slot;  // of the path
  RequestRecord record;

  const HttpRequest& request() const { return exchange->request(); }
};

namespace {

// Takes as long for every wrong key of one length, wherever the difference is.
bool is_same_key(std::string_view a, std::string_view b) {
  size_t difference = a.size() ^ b.size();
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<size_t>(static_cast<unsigned char>(a[i]) ^
                                      static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]));
  return difference == 0;
}

std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  std::string_view key = request.header("authorization");
  const bool bearer = key.size() >= kBearer.size() &&
                      std::ranges::equal(key.substr(0, kBearer.size()), kBearer, {}, [](char c) { return c | 0x20; });
  if (bearer) return key.substr(kBearer.size());
  return request.header("x-api-key");
}

bool is_sane_id(std::string_view id) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.';
  };
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, is_plain);
}

uint64_t mix(uint64_t x) {  // the finalizer of splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t random_bits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

App::App(AppOptions options) : options_(std::move(options)), id_seed_(random_bits()), workers_(options_.workers) {}

App::~App() = default;

void App::ready(Engine& engine, std::unique_ptr<Generator> generator, decode::SamplingParameters defaults) {
  const std::string* source = options_.chat_template ? &*options_.chat_template : engine.chat_template();
  const auto slots = static_cast<uint32_t>(generator->status().slots.size());
  std::unique_ptr<ChatFormat> format;
  if (source != nullptr) format = template_format(engine.tokenizer(), *source);
  ServerFacts facts{.alias = options_.alias,
                    .path = options_.model_path,
                    .version = options_.version,
                    .chat_template = source,
                    .sampling = std::move(defaults),
                    .slots = options_.slots,
                    .metrics = options_.metrics};
  owned_model_ = std::make_unique<Model>(
      Model{engine, std::move(generator), std::move(format), std::move(facts), std::max<uint32_t>(slots, 1)});
  model_ = owned_model_.get();
}

void App::handle(std::shared_ptr<Exchange> exchange) {
  const auto call = std::make_shared<Call>();
  call->exchange = std::move(exchange);
  guard(*call, [&] {
    open(*call);
    dispatch(call);
  });
}

// Whatever is thrown is an answer too.
template <typename Work>
void App::guard(Call& call, Work&& work) {
  try {
    work();
  } catch (const ApiError& error) {
    send_error(call, error);
  } catch (const Error& error) {
    send_error(call, as_api_error(error));
  } catch (const std::exception& error) {
    send_error(call, ApiError(500, "server_error", error.what()));
  }
}

// Its id, and what every answer carries.
void App::open(Call& call) const {
  const HttpRequest& request = call.request();
  const std::string_view given = request.header("x-request-id");
  const uint64_t number = id_seed_ + requests_.fetch_add(1) * 0x9E3779B97F4A7C15u;
  call.record.id = is_sane_id(given) ? std::string(given) : fmt::format("{:016x}", mix(number));
  call.record.method = request.method;
  call.record.path = request.path;
  call.record.peer = request.peer;
  call.headers.emplace_back("X-Request-Id", call.record.id);
  if (options_.cors_origin.empty()) return;
  call.headers.emplace_back("Access-Control-Allow-Origin", options_.cors_origin);
  if (options_.cors_origin != "*") call.headers.emplace_back("Vary", "Origin");
}

void App::dispatch(const CallPtr& call) {
  const HttpRequest& request = call->request();
  RouteMatch match = find_route(request.method, request.path);
  if (request.method == "OPTIONS" && !match.allow.empty()) return preflight(*call, match);
  if (match.route == nullptr && match.allow.empty())
    throw ApiError(404, "not_found_error", "there is no such endpoint; GET /openapi.json lists those that there are");
  if (match.route == nullptr) {
    ApiError error(405, "invalid_request_error", "the endpoint takes " + match.allow);
    error.allow = match.allow;
    throw error;
  }
  call->route = match.route;
  call->slot = std::move(match.id);
  if (match.route->needs_key) check_key(request);
  if (match.route->needs_model) {
    model();
    if (closing_ && match.route->fields != nullptr) throw unavailable("the server is shutting down", 10);
  }
  if (match.route->fields == nullptr) return serve(call);
  workers_.run([this, call] { guard(*call, [&] { serve(call); }); });
}

void App::check_key(const HttpRequest& request) const {
  if (options_.keys.empty()) return;
  const std::string_view given = key_of(request);
  bool good = false;
  for (const std::string& key : options_.keys) good = is_same_key(given, key) || good;  // looks at all of them
  if (!good) throw ApiError(401, "authentication_error", "Invalid API Key");
}

const App::Model& App::model() const {
  if (const Model* model = model_) return *model;
  ApiError error = unavailable("Loading model", 5);
  error.numbers = {{"progress_percent", static_cast<uint64_t>(loaded_share_ * 100)}};
  throw error;
}

void App::preflight(Call& call, const RouteMatch& match) const {
  HttpResponse response;
  response.status = 204;
  response.headers = {{"Allow", match.allow}};
  if (!options_.cors_origin.empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", match.allow);
    response.headers.emplace_back("Access-Control-Allow-Headers",
                                  "Authorization, Content-Type, X-Api-Key, X-Request-Id");
    response.headers.emplace_back("Access-Control-Max-Age", "86400");
  }
  send(call, std::move(response));
}

void App::send(Call& call, HttpResponse response) const {
  response.headers.insert(response.headers.end(), call.headers.begin(), call.headers.end());
  call.record.status = response.status;
  call.record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - call.begun).count();
  call.exchange->send(std::move(response));
  if (options_.log) options_.log(call.record);
}

void App::send(Call& call, std::string body) const {
  HttpResponse response;
  response.body = std::move(body);
  send(call, std::move(response));
}

void App::send_error(Call& call, const ApiError& error) const {
  call.record.error = error.type();
  call.record.field = error.param();
  send(call, to_response(error));
}

void App::serve(const CallPtr& call) {
  if (options_.log_prompts) call->record.prompt = call->request().body;
  switch (call->route->endpoint) {
    case Endpoint::kHealth:
      return health(*call);
    case Endpoint::kModels: {
      const Model* loaded = model_;
      const ServerFacts loading{.alias = options_.alias, .path = {}, .version = {}, .sampling = {}};
      return send(*call, models_body(loaded ? loaded->facts : loading, loaded ? &loaded->engine : nullptr));
    }
    case Endpoint::kProps:
      return send(*call, props_body(model().facts, model().engine, model().generator->status()));
    case Endpoint::kSlots:
      if (!options_.slots) throw ApiError(501, "not_supported_error", "the server was started with --no-slots");
      return send(*call, slots_body(model().engine, model().generator->status()));
    case Endpoint::kMetrics: {
      if (!options_.metrics) throw ApiError(501, "not_supported_error", "the server was started without --metrics");
      HttpResponse response;
      response.content_type = call->route->content_type;
      response.body = metrics_text(model().engine, model().generator->status());
      return send(*call, std::move(response));
    }
    case Endpoint::kOpenApi:
      return send(*call, openapi_document());
    case Endpoint::kCompletion:
    case Endpoint::kOpenAiCompletion:
      return completion(call);
    case Endpoint::kChat:
      return chat(call);
    case Endpoint::kTokenize:
      return tokenize(*call);
    case Endpoint::kDetokenize:
      return detokenize(*call);
    case Endpoint::kApplyTemplate:
      return apply_template(*call);
    case Endpoint::kSlotAction:
      return slot_action(call);
  }
}

void App::health(Call& call) const {
  if (closing_) throw unavailable("the server is shutting down", 10);
  const double idle = model().generator->status().seconds_since_progress;
  if (idle > options_.stall_seconds)
    throw unavailable(fmt::format("no step of the model has ended for {:.0f} seconds", idle), 10);
  send(call, std::string(R"({"status":"ok"})"));
}

RequestContext App::context() const {
  const Model& m = model();
  return {m.engine.tokenizer(), m.facts.sampling, options_.seed, m.engine.context_size(), m.slots,
          options_.max_tokens,  options_.limits};
}

void App::start_answer(const CallPtr& call, std::vector<GenerationRequest> requests,
                       std::unique_ptr<AnswerWriter> writer, const AnswerOptions& options) {
  AnswerTaskOptions task;
  task.stream = options.stream;
  task.keep_alive = options.keep_alive;
  task.headers = call->headers;
  task.finished = [this, record = call->record, begun = call->begun](const AnswerSummary& summary) mutable {
    if (!options_.log) return;
    record.status = summary.status;
    record.error = summary.error;
    record.answer = summary;
    record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    options_.log(record);
  };
  for (GenerationRequest& request : requests) request.total_limit_s = options_.request_limit_s;
  answer(call->exchange, *model().generator, std::move(requests), std::move(writer), std::move(task));
}

void App::completion(const CallPtr& call) {
  const jinja::Value body = parse_body(call->request().body);
  const Fields fields(body, *call->route->fields());
  call->record.ignored = fields.ignored();
  const bool openai = call->route->endpoint == Endpoint::kOpenAiCompletion;
  CompletionRequest request = openai ? read_openai_completion(fields, context()) : read_completion(fields, context());
  std::vector<GenerationRequest> requests;
  for (const Prompt& prompt : request.prompts)
    for (uint32_t n = 0; n < request.options.choices; ++n) {
      requests.push_back(request.generation);
      requests.back().prompt = prompt.tokens;
      requests.back().sequence = n;
    }
  const AnswerOptions options = request.options;
  AnswerHead head{call->record.id, options_.alias, std::time(nullptr)};
  const auto write = openai ? text_writer : completion_writer;
  start_answer(call, std::move(requests), write(std::move(request), std::move(head), model().engine.tokenizer()),
               options);
}

namespace {

const ChatFormat& format_of(const std::unique_ptr<ChatFormat>& format) {
  if (format == nullptr)
    throw ApiError(501, "not_supported_error",
                   "the model's file has no chat template: start the server with --chat-template-file, or use "
                   "/v1/completions");
  return *format;
}

// What a template says against the messages is the request's fault.
ChatPromptMade make_prompt(const ChatFormat& format, const ChatQuestion& question) {
  try {
    return format.prompt(question);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    bad_field("messages", error.what());
  }
}

}  // namespace

void App::chat(const CallPtr& call) {
  const ChatFormat& format = format_of(model().format);
  const jinja::Value body = parse_body(call->request().body);
  const Fields fields(body, *call->route->fields());
  call->record.ignored = fields.ignored();
  const ChatRequest request = read_chat(fields, context(), options_.chat);
  const ChatPromptMade made = make_prompt(format, request.question);
  check_length(made.prompt.tokens, context());
  std::vector<GenerationRequest> requests(request.options.choices, request.generation);
  for (size_t n = 0; n < requests.size(); ++n) {
    requests[n].prompt = made.prompt.tokens;
    requests[n].turn_starts = made.prompt.turn_starts;
    requests[n].reasoning_limit = made.reasoning_limit;
    requests[n].sequence = n;
  }
  AnswerHead head{call->record.id, options_.alias, std::time(nullptr)};
  start_answer(call, std::move(requests),
               chat_writer(request, made, std::move(head), format, model().engine.tokenizer()), request.options);
}

void App::tokenize(Call& call) const {
  const jinja::Value body = parse_body(call.request().body);
  const Fields fields(body, tokenize_fields());
  call.record.ignored = fields.ignored();
  const chat::Tokenizer& tokenizer = model().engine.tokenizer();
  const std::vector<int32_t> tokens =
      read_tokens("content", *fields.find("content"), tokenizer, fields.flag("add_special", false),
                  fields.flag("parse_special", true));
  Json list = Json::array();
  const bool pieces = fields.flag("with_pieces", false);
  for (const int32_t token : tokens) {
    if (!pieces) {
      list.push_back(token);
      continue;
    }
    const std::string piece = tokenizer.piece(token);
    Json shown = piece;
    if (!utf8::is_valid(piece)) shown = std::vector<uint8_t>(piece.begin(), piece.end());
    list.push_back({{"id", token}, {"piece", std::move(shown)}});
  }
  send(call, to_text({{"tokens", std::move(list)}}));
}

void App::detokenize(Call& call) const {
  const jinja::Value body = parse_body(call.request().body);
  const Fields fields(body, detokenize_fields());
  call.record.ignored = fields.ignored();
  const chat::Tokenizer& tokenizer = model().engine.tokenizer();
  const std::vector<int32_t> tokens = read_tokens("tokens", *fields.find("tokens"), tokenizer, false, true);
  send(call, to_text({{"content", tokenizer.decode(tokens, /*skip_control=*/false)}}));
}

void App::apply_template(Call& call) const {
  const ChatFormat& format = format_of(model().format);
  const jinja::Value body = parse_body(call.request().body);
  const Fields fields(body, template_fields());
  call.record.ignored = fields.ignored();
  send(call, to_text({{"prompt", make_prompt(format, read_question(fields, options_.limits)).prompt.text}}));
}

void App::slot_action(const CallPtr& call) {
  const jinja::Value body = parse_body(call->request().body);
  const Fields fields(body, slot_fields());
  call->record.ignored = fields.ignored();
  const uint32_t slots = model().slots;
  uint32_t slot = 0;
  const char* end = call->slot.data() + call->slot.size();
  const auto [at, failure] = std::from_chars(call->slot.data(), end, slot);
  if (failure != std::errc() || at != end || slot >= slots)
    bad_field("id_slot", fmt::format("there are slots 0 to {}", slots - 1));
  const auto& query = call->request().query;
  const std::string action = query.contains("action") ? query.at("action") : std::string();
  if (action != "save" && action != "restore" && action != "erase")
    bad_field("action", "the address must end with ?action=save, ?action=restore or ?action=erase");
  const std::string file = fields.text("filename").value_or("");
  if (action != "erase" && file.empty()) bad_field("filename", "is needed: a file's name without folders");

  const auto done = [this, call, action](const SlotFileResult* result, const Error* error) {
    if (error != nullptr) return send_error(*call, as_api_error(*error));
    Json out = {{"id_slot", result->slot}};
    if (action == "erase") {
      out["n_erased"] = result->tokens;
    } else {
      const bool save = action == "save";
      out["filename"] = result->file;
      out[save ? "n_saved" : "n_restored"] = result->tokens;
      out[save ? "n_written" : "n_read"] = result->bytes;
      out["timings"] = {{save ? "save_ms" : "restore_ms", result->seconds * 1e3}};
    }
    send(*call, to_text(out));
  };
  Generator& generator = *model().generator;
  if (action == "save") return generator.save_slot(slot, file, done);
  if (action == "restore") return generator.restore_slot(slot, file, done);
  generator.erase_slot(slot, done);
}

}  // namespace sluice::server
