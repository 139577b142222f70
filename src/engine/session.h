// One conversation on an engine that nobody else uses: a step loop with one slot, run until the answer is there. It
// computes only what is new, from the longest prefix that it still holds.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/step_loop.h"

namespace sluice {

struct GenerateOptions {
  uint32_t max_tokens = UINT32_MAX;
  std::vector<std::string> stop_strings;
  uint64_t sequence = 0;  // numbers answers to one prompt: each draws other random numbers
  // Gets the text as it becomes certain, in whole characters; returns false to end the answer.
  std::function<bool(const std::string& text)> on_text;
  // Asked between steps.
  std::function<bool()> interrupted;
};

struct Answer {
  std::vector<int32_t> tokens;  // without the end-of-generation token
  std::string text;             // up to a stop string
  StopReason reason = StopReason::kEndOfText;
  size_t prompt_tokens = 0;   // of the whole prompt
  size_t cached_tokens = 0;   // of those, not computed again
  double prompt_seconds = 0;  // computing the others
  double answer_seconds = 0;  // computing the answer's tokens but the first
};

class Session {
 public:
  // Throws Error(kLimit) when memory runs out. `engine` must outlive it.
  explicit Session(Engine& engine);

  // Answers a prompt: computes what is new of it, then samples until an end-of-generation token, a stop string, the
  // limit, a full context or an interrupt. After each of the given numbers of tokens a state is kept, from which a
  // later, different continuation can start. Throws what StepLoop::check does, what went wrong in a step, and what
  // the callbacks throw; the session can go on then.
  Answer generate(std::span<const int32_t> prompt, std::span<const size_t> turn_starts, const decode::Sampler& sampler,
                  const GenerateOptions& options);

  // Tokens that the state holds.
  size_t length() const { return loop_.slots()[0].tokens; }
  void clear() { loop_.clear(); }

 private:
  StepLoop loop_;
  uint64_t answers_ = 0;
};

}  // namespace sluice
