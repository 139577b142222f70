// For tests of this room: a step loop that is run by hand, and a listener that writes down what it is told.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/step_loop.h"
#include "engine/test_models.h"

namespace sluice::test {

struct Recorder : GenerationListener {
  void progress(const GenerationStats& s) override { progressed.push_back(s.computed_tokens); }
  void token(const TokenEvent& event, const GenerationStats& s) override {
    tokens.push_back(event.token);
    text += event.text;
    for (const TokenChance& chance : event.likely) chances.push_back(chance.logprob);
    stats = s;
    if (on_token) on_token();
  }
  void done(StopReason r, const std::string& rest, const std::string& s, const GenerationStats& last) override {
    EXPECT_FALSE(over());
    reason = r, text += rest, stop = s, stats = last;
  }
  void failed(const Error& e, const GenerationStats& last) override {
    EXPECT_FALSE(over());
    error = e, stats = last;
  }
  bool over() const { return reason.has_value() || error.has_value(); }

  std::vector<int32_t> tokens;
  std::string text, stop;
  std::vector<float> chances;  // of all likely tokens, in order
  std::vector<size_t> progressed;
  GenerationStats stats;
  std::optional<StopReason> reason;
  std::optional<Error> error;
  std::function<void()> on_token;
};

// So that no end comes by itself, with the chances of all tokens.
inline GenerationRequest request(std::vector<int32_t> prompt, uint32_t n = 8, float temperature = 1.5f,
                                 uint64_t seed = 7) {
  GenerationRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = n;
  r.sampling.temperature = temperature, r.sampling.seed = seed;
  r.ignore_end = true;
  r.n_likely = 640;
  return r;
}

class Loop {
 public:
  explicit Loop(const EngineOptions& options, LoopOptions how = {}) : engine(options), loop(engine, how) {}

  std::shared_ptr<Recorder> submit(GenerationRequest r) {
    auto listener = std::make_shared<Recorder>();
    loop.check(r);
    loop.submit(++last, std::move(r), listener);
    return listener;
  }
  void run() {
    for (int steps = 0; !loop.idle(); ++steps) {
      ASSERT_LT(steps, 10000) << "it does not come to an end";
      loop.step();
    }
  }
  std::shared_ptr<Recorder> answer(GenerationRequest r) {
    const auto listener = submit(std::move(r));
    run();
    return listener;
  }

  Engine engine;
  StepLoop loop;
  uint64_t last = 0;
};

inline void expect_same(const Recorder& a, const Recorder& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.reason, b.reason);
  EXPECT_TRUE(same_bits(a.chances, b.chances));
}

}  // namespace sluice::test
