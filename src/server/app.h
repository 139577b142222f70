// The server's mind: answers the exchanges of an HttpServer with what an engine computes. Until the model is there it
// says so; whatever a request holds, it is answered, and touches no other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_task.h"
#include "server/chat_request.h"
#include "server/generator.h"
#include "server/http.h"
#include "server/routes.h"
#include "server/workers.h"

namespace sluice::server {

// A line of the log. Never holds what a client wrote, save with log_prompts.
struct RequestRecord {
  std::string id, method, path, peer;
  int status = 0;
  double seconds = 0;                // from the request's arrival to the answer's end
  std::string error;                 // type of the error; empty: none
  std::string field;                 // that was wrong
  std::vector<std::string> ignored;  // fields without effect
  AnswerSummary answer;              // of requests for answers
  std::string prompt;                // with log_prompts: the body
};

struct AppOptions {
  std::string alias;                         // the server's name for the model
  std::string model_path;                    // of its file, to be told
  std::vector<std::string> keys;             // any of them opens the door; none: it stands open
  std::string cors_origin;                   // of pages that may ask: "*" or one origin; empty: none
  std::optional<std::string> chat_template;  // source; not set: the model file's
  ChatDefaults chat;
  std::optional<uint64_t> seed;       // of requests that bring none; not set: a new one for each
  std::string version;                // of the program
  uint32_t max_tokens = UINT32_MAX;   // of an answer, where the request doesn't say
  double request_limit_s = 0;         // of a request in all; 0: none
  bool metrics = true, slots = true;  // whether these endpoints are there
  bool log_prompts = false;
  double stall_seconds = 60;  // without progress that health calls a stall
  int workers = 2;            // threads that read requests; 0: the caller's
  RequestLimits limits;
  std::function<void(const RequestRecord&)> log;  // called from any thread; must not block
};

class App {
 public:
  explicit App(AppOptions options);
  ~App();  // every exchange must be over, or the HttpServer stopped

  // For an HttpServer: never throws, never blocks.
  void handle(std::shared_ptr<Exchange> exchange);

  // While the model is being loaded: 0 to 1.
  void loading(double share) { loaded_share_ = share; }
  // From now on requests are answered; once. `engine` must outlive the App's last exchange. Throws jinja::TemplateError
  // for a chat template that is none.
  void ready(Engine& engine, std::unique_ptr<Generator> generator, decode::SamplingParameters defaults);
  // From now on what needs the model is refused with 503; answers that are being computed go on.
  void close() { closing_ = true; }

 private:
  struct Model;
  struct Call;
  using CallPtr = std::shared_ptr<Call>;

  void open(Call& call) const;
  void dispatch(const CallPtr& call);
  template <typename Work>
  void guard(Call& call, Work&& work);
  void serve(const CallPtr& call);
  void check_key(const HttpRequest& request) const;
  const Model& model() const;
  void send(Call& call, HttpResponse response) const;
  void send(Call& call, std::string body) const;
  void send_error(Call& call, const ApiError& error) const;
  void preflight(Call& call, const RouteMatch& match) const;

  void health(Call& call) const;
  void completion(const CallPtr& call);
  void chat(const CallPtr& call);
  void tokenize(Call& call) const;
  void detokenize(Call& call) const;
  void apply_template(Call& call) const;
  void slot_action(const CallPtr& call);
  void start_answer(const CallPtr& call, std::vector<GenerationRequest> requests, std::unique_ptr<AnswerWriter> writer,
                    const AnswerOptions& options);
  RequestContext context() const;

  AppOptions options_;
  std::atomic<double> loaded_share_{0};
  std::atomic<bool> closing_{false};
  std::atomic<const Model*> model_{nullptr};  // set once
  std::unique_ptr<Model> owned_model_;
  mutable std::atomic<uint64_t> requests_{0};
  uint64_t id_seed_;
  Workers workers_;
};

}  // namespace sluice::server
