// For tests of this room: an exchange without a network, a generator without a model's time, and an App on both with
// the small model of tests/data.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/test_models.h"
#include "server/app.h"

namespace sluice::server::test {

class FakeExchange : public Exchange {
 public:
  FakeExchange(std::string method, std::string path, std::string body) {
    request_.method = std::move(method);
    request_.body = std::move(body);
    const size_t mark = path.find("?action=");
    if (mark != std::string::npos) request_.query["action"] = path.substr(mark + 8);
    request_.path = path.substr(0, mark);
    request_.peer = "127.0.0.1:1";
  }
  HttpRequest& editable() { return request_; }
  const HttpRequest& request() const override { return request_; }
  void send(HttpResponse response) override {
    EXPECT_FALSE(over_) << "a second answer";
    head = std::move(response);
    over_ = true;
  }
  void begin(HttpResponse response, std::string, std::chrono::milliseconds) override {
    EXPECT_FALSE(begun_ || over_) << "a second answer";
    head = std::move(response);
    begun_ = true;
  }
  void write(std::string piece) override {
    EXPECT_TRUE(begun_ && !over_);
    head.body += piece;
  }
  void end() override {
    EXPECT_TRUE(begun_ && !over_);
    over_ = true;
  }
  void on_gone(std::function<void()> callback) override { gone = std::move(callback); }

  bool over() const { return over_; }
  std::string header(const std::string& name) const {
    for (const auto& [key, value] : head.headers)
      if (key == name) return value;
    return {};
  }
  // The data of a stream's events.
  std::vector<std::string> events() const {
    std::vector<std::string> out;
    const std::string& text = head.body;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find("\n\n", at);
      EXPECT_NE(end, std::string::npos);
      EXPECT_EQ(text.compare(at, 6, "data: "), 0);
      out.push_back(text.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return out;
  }

  HttpResponse head;
  std::function<void()> gone;

 private:
  HttpRequest request_;
  bool begun_ = false, over_ = false;
};

// Keeps what it is asked; the test answers.
class FakeGenerator : public Generator {
 public:
  struct Asked {
    GenerationRequest request;
    std::shared_ptr<GenerationListener> listener;
  };

  FakeGenerator() { state.slots.resize(2); }
  uint64_t submit(GenerationRequest request, std::shared_ptr<GenerationListener> listener) override {
    if (asked.size() >= room) fail(ErrorKind::kLimit, "{} requests are waiting already", asked.size());
    asked.push_back({std::move(request), std::move(listener)});
    return asked.size();
  }
  void cancel(uint64_t request) override { cancelled.push_back(request); }
  ServiceStatus status() const override { return state; }
  void save_slot(uint32_t slot, const std::string& file, Service::SlotDone done) override {
    const SlotFileResult result{slot, file, 12, 3456, 0.5};
    done(&result, nullptr);
  }
  void restore_slot(uint32_t, const std::string& file, Service::SlotDone done) override {
    const Error error(ErrorKind::kFormat, file + ": is no slot file");
    done(nullptr, &error);
  }
  void erase_slot(uint32_t slot, Service::SlotDone done) override {
    const SlotFileResult result{slot, "", 7, 0, 0};
    done(&result, nullptr);
  }

  // Answers number `index` with these pieces of text.
  void play(size_t index, const std::vector<std::string>& pieces, StopReason reason = StopReason::kEndOfText,
            const std::string& held = "", const std::string& stop = "") {
    const Asked& one = asked[index];
    GenerationStats stats;
    stats.prompt_tokens = one.request.prompt.size();
    stats.cached_tokens = 1;
    stats.computed_tokens = stats.prompt_tokens - 1;
    stats.cache_reason = CacheReason::kExtended;
    stats.prompt_seconds = 0.5;
    stats.answer_seconds = 2;
    one.listener->progress(stats);
    for (const std::string& piece : pieces) {
      ++stats.answer_tokens;
      TokenEvent event;
      event.token = 65;
      event.text = piece;
      if (one.request.n_likely) {
        event.logprob = -0.5f;
        for (uint32_t i = 0; i < *one.request.n_likely; ++i)
          event.likely.push_back({static_cast<int32_t>(65 + i), -0.5f - static_cast<float>(i)});
      }
      one.listener->token(event, stats);
    }
    one.listener->done(reason, held, stop, stats);
  }

  std::vector<Asked> asked;
  std::vector<uint64_t> cancelled;
  size_t room = 1000;
  ServiceStatus state;
};

// Answers on the thread that asks.
class AppTest : public ::testing::Test {
 protected:
  AppTest() : engine_(sluice::test::micro_options()) {}

  // A new App; the one before is gone.
  void start(AppOptions options = {}) {
    options.alias = "small";
    options.workers = 0;
    options.log = [this](const RequestRecord& record) { log_.push_back(record); };
    app_ = std::make_unique<App>(std::move(options));
    auto generator = std::make_unique<FakeGenerator>();
    generator_ = generator.get();
    app_->ready(engine_, std::move(generator), engine_.sampling_defaults());
  }

  std::shared_ptr<FakeExchange> ask(const std::string& method, const std::string& path, const std::string& body = "",
                                    const std::map<std::string, std::string>& headers = {}) {
    const auto exchange = std::make_shared<FakeExchange>(method, path, body);
    exchange->editable().headers = headers;
    app_->handle(exchange);
    return exchange;
  }
  std::shared_ptr<FakeExchange> post(const std::string& path, const std::string& body) {
    return ask("POST", path, body);
  }

  Engine engine_;
  std::unique_ptr<App> app_;
  FakeGenerator* generator_ = nullptr;
  std::vector<RequestRecord> log_;
};

}  // namespace sluice::server::test
