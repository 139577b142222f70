#include "server/answer_task.h"

#include <fmt/core.h>

#include <mutex>
#include <optional>

namespace sluice::server {

namespace {

// Told by the engine's thread, the exchange's and the one that submits. `mutex_` is held while the exchange is written
// to, so what the exchange calls (gone) must do without it.
class AnswerTask : public std::enable_shared_from_this<AnswerTask> {
 public:
  AnswerTask(std::shared_ptr<Exchange> exchange, Generator& generator, std::unique_ptr<AnswerWriter> writer,
             AnswerTaskOptions options)
      : exchange_(std::move(exchange)),
        generator_(generator),
        writer_(std::move(writer)),
        options_(std::move(options)) {}

  void start(std::vector<GenerationRequest> requests);
  // The client has left. What is being computed ends soon, and tells.
  void gone() { cancel_all(); }

  void progress(size_t answer, const GenerationStats& stats);
  void token(size_t answer, const TokenEvent& event, const GenerationStats& stats);
  void done(size_t answer, StopReason reason, const std::string& text, const std::string& stop,
            const GenerationStats& stats);
  void failed(const ApiError& error);

 private:
  // All with mutex_ held.
  void begin_stream();
  void give(std::string events);
  void answered(std::string text);
  void finish(int status, const std::string& error);

  void submitted(size_t answer, uint64_t id);
  void cancel_all();

  std::shared_ptr<Exchange> exchange_;
  Generator& generator_;
  std::unique_ptr<AnswerWriter> writer_;
  AnswerTaskOptions options_;

  std::mutex mutex_;
  size_t left_ = 0;      // answers that are not over
  bool begun_ = false;   // the stream
  bool closed_ = false;  // nothing is sent any more
  AnswerSummary summary_;

  std::mutex ids_mutex_;                      // of these two; nothing is called while it is held
  std::vector<std::optional<uint64_t>> ids_;  // of the engine; none: not yet known, or over
  bool cancelled_ = false;
};

class Listener : public GenerationListener {
 public:
  Listener(std::shared_ptr<AnswerTask> task, size_t answer) : task_(std::move(task)), answer_(answer) {}
  void progress(const GenerationStats& stats) override { task_->progress(answer_, stats); }
  void token(const TokenEvent& event, const GenerationStats& stats) override { task_->token(answer_, event, stats); }
  void done(StopReason reason, const std::string& text, const std::string& stop,
            const GenerationStats& stats) override {
    task_->done(answer_, reason, text, stop, stats);
  }
  void failed(const Error& error, const GenerationStats&) override { task_->failed(as_api_error(error)); }

 private:
  std::shared_ptr<AnswerTask> task_;
  size_t answer_;
};

void AnswerTask::start(std::vector<GenerationRequest> requests) {
  summary_.answers = requests.size();
  ids_.resize(requests.size());
  left_ = requests.size();
  for (size_t i = 0; i < requests.size(); ++i) {
    try {
      submitted(i, generator_.submit(std::move(requests[i]), std::make_shared<Listener>(shared_from_this(), i)));
    } catch (const Error& error) {
      return failed(as_api_error(error));
    }
  }
  {
    const std::lock_guard lock(mutex_);
    begin_stream();
  }
  // Last, since it may be called at once.
  exchange_->on_gone([weak = weak_from_this()] {
    if (const auto task = weak.lock()) task->gone();
  });
}

void AnswerTask::submitted(size_t answer, uint64_t id) {
  bool unwanted = false;
  {
    const std::lock_guard lock(ids_mutex_);
    ids_[answer] = id;
    unwanted = cancelled_;
  }
  if (unwanted) generator_.cancel(id);
}

void AnswerTask::cancel_all() {
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(ids_mutex_);
    cancelled_ = true;
    for (const std::optional<uint64_t>& id : ids_)
      if (id) ids.push_back(*id);
  }
  for (const uint64_t id : ids) generator_.cancel(id);
}

// From then on an error is an event of the stream.
void AnswerTask::begin_stream() {
  if (!options_.stream || begun_ || closed_) return;
  begun_ = true;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = options_.headers;
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  const bool quiet = options_.keep_alive.count() == 0;
  exchange_->begin(std::move(head), quiet ? "" : ": waiting\n\n", quiet ? std::chrono::hours(24) : options_.keep_alive);
}

void AnswerTask::give(std::string events) {
  if (events.empty()) return;
  begin_stream();
  exchange_->write(std::move(events));
}

void AnswerTask::answered(std::string text) {
  if (options_.stream) {
    give(std::move(text));
    exchange_->end();
  } else {
    HttpResponse response;
    response.body = std::move(text);
    response.headers = options_.headers;
    exchange_->send(std::move(response));
  }
  finish(200, "");
}

void AnswerTask::finish(int status, const std::string& error) {
  closed_ = true;
  summary_.status = status;
  summary_.error = error;
  if (options_.finished) options_.finished(summary_);
}

void AnswerTask::progress(size_t answer, const GenerationStats& stats) {
  const std::lock_guard lock(mutex_);
  if (!closed_) give(writer_->progress(answer, stats));
}

void AnswerTask::token(size_t answer, const TokenEvent& event, const GenerationStats& stats) {
  bool enough = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    give(writer_->token(answer, event, stats));
    enough = writer_->enough(answer);
  }
  if (!enough) return;
  std::optional<uint64_t> id;
  {
    const std::lock_guard lock(ids_mutex_);
    id.swap(ids_[answer]);
  }
  if (id) generator_.cancel(*id);
}

void AnswerTask::done(size_t answer, StopReason reason, const std::string& text, const std::string& stop,
                      const GenerationStats& stats) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  summary_.stats.push_back(stats);
  summary_.stop = name_of(reason);
  std::string out = writer_->done(answer, reason, text, stop, stats);
  if (--left_ > 0) {
    if (options_.stream) give(std::move(out));
    return;
  }
  // Nobody else interrupts an answer: the client has gone, and 499 is the number that proxies log for it.
  if (reason == StopReason::kInterrupted && !writer_->enough(answer)) return finish(499, "client_closed_request");
  answered(out + writer_->end());
}

void AnswerTask::failed(const ApiError& error) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    if (begun_) {
      exchange_->write("data: " + to_body(error) + "\n\n");
      exchange_->end();
    } else {
      HttpResponse response = to_response(error);
      response.headers.insert(response.headers.end(), options_.headers.begin(), options_.headers.end());
      exchange_->send(std::move(response));
    }
    finish(error.status(), error.type());
  }
  cancel_all();
}

}  // namespace

void answer(std::shared_ptr<Exchange> exchange, Generator& generator, std::vector<GenerationRequest> requests,
            std::unique_ptr<AnswerWriter> writer, AnswerTaskOptions options) {
  std::make_shared<AnswerTask>(std::move(exchange), generator, std::move(writer), std::move(options))
      ->start(std::move(requests));
}

}  // namespace sluice::server
