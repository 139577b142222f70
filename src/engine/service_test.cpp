// Many askers, one loop: every answer is the one that its request has alone.
#include "engine/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/session.h"
#include "engine/test_models.h"

namespace sluice {
namespace {

using test::some_tokens;
using Tokens = std::vector<int32_t>;

class Waiter : public GenerationListener {
 public:
  void token(const TokenEvent& event, const GenerationStats&) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(event.token);
    changed_.notify_all();
  }
  void done(StopReason reason, const std::string&, const std::string&, const GenerationStats&) override {
    const std::lock_guard lock(mutex_);
    reason_ = reason;
    changed_.notify_all();
  }
  void failed(const Error& error, const GenerationStats&) override { ADD_FAILURE() << error.what(); }

  StopReason wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reason_.has_value(); });
    return *reason_;
  }
  void wait_for_tokens(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_.size() >= n || reason_.has_value(); });
  }
  Tokens tokens() const {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Tokens tokens_;
  std::optional<StopReason> reason_;
};

EngineOptions service_engine() {
  EngineOptions options = test::micro_options();
  options.sequences = 3;
  options.context = 1024;
  options.cache_bytes = 8 << 20;
  return options;
}

GenerationRequest request(uint32_t variant, uint32_t n) {
  GenerationRequest r;
  r.prompt = some_tokens(5 + variant * 7, variant);
  r.max_tokens = n;
  r.ignore_end = true;
  r.sampling.seed = variant;
  return r;
}

TEST(Service, ManyAskersGetTheAnswersThatTheyGetAlone) {
  Engine engine(service_engine());
  Service service(engine, {});
  std::vector<std::thread> askers;
  std::vector<Tokens> got(6);
  for (uint32_t i = 0; i < 6; ++i)
    askers.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) {
        const auto waiter = std::make_shared<Waiter>();
        service.submit(request(i, 12), waiter);
        service.status();
        EXPECT_EQ(waiter->wait(), StopReason::kLimit);
        const Tokens tokens = waiter->tokens();
        EXPECT_TRUE(round == 0 || tokens == got[i]);
        got[i] = tokens;
      }
    });
  for (std::thread& asker : askers) asker.join();
  service.stop();
  EXPECT_EQ(service.status().counters.finished, 18u);
  for (uint32_t i = 0; i < 6; ++i) {
    Engine other(test::micro_options());
    StepLoop loop(other, {});
    const auto waiter = std::make_shared<Waiter>();
    loop.submit(1, request(i, 12), waiter);
    while (!loop.idle()) loop.step();
    EXPECT_EQ(got[i], waiter->tokens());
  }
}

TEST(Service, CancelEndsAnAnswerAndAnUnknownNumberIsNothing) {
  Engine engine(service_engine());
  Service service(engine, {});
  const auto waiter = std::make_shared<Waiter>();
  const uint64_t id = service.submit(request(1, 900), waiter);
  waiter->wait_for_tokens(3);
  service.cancel(id);
  service.cancel(99);
  EXPECT_EQ(waiter->wait(), StopReason::kInterrupted);
}

TEST(Service, AFullQueueIsAnErrorThatCostsNobodyElseAnything) {
  Engine engine(service_engine());
  ServiceOptions options;
  options.queue = 2;
  Service service(engine, options);
  std::vector<std::shared_ptr<Waiter>> taken;
  int refused = 0;
  for (int i = 0; i < 50; ++i) {
    const auto waiter = std::make_shared<Waiter>();
    try {
      service.submit(request(1, 300), waiter);
      taken.push_back(waiter);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLimit);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(service.status().refused, static_cast<uint64_t>(refused));
  service.stop();
  for (const auto& waiter : taken)
    EXPECT_THAT(waiter->wait(), ::testing::AnyOf(StopReason::kShutdown, StopReason::kLimit));
}

TEST(Service, DrainLetsAnswersEndAndTakesNoMore) {
  Engine engine(service_engine());
  Service service(engine, {});
  const auto waiter = std::make_shared<Waiter>();
  service.submit(request(1, 50), waiter);
  service.drain(600);
  EXPECT_EQ(waiter->wait(), StopReason::kLimit);
  EXPECT_EQ(waiter->tokens().size(), 50u);
  EXPECT_THROW(service.submit(request(1, 5), std::make_shared<Waiter>()), Error);
}

TEST(Service, StopEndsWhatDrainDidNotWaitFor) {
  Engine engine(service_engine());
  Service service(engine, {});
  const auto waiter = std::make_shared<Waiter>();
  service.submit(request(1, 1000), waiter);
  waiter->wait_for_tokens(1);
  service.drain(0);
  service.stop();
  EXPECT_EQ(waiter->wait(), StopReason::kShutdown);
}

}  // namespace
}  // namespace sluice
