// One conversation: the tokens that the model has seen and the state after them. It is told what the tokens should be
// and computes only what is new, from the longest prefix that it still holds.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "state/sequence.h"

namespace sluice {

// Why an answer ended.
enum class StopReason { kEndOfText, kLimit, kStopString, kInterrupted };
const char* name_of(StopReason reason);  // "eos", "limit", "stop-string", "interrupt"

struct GenerateOptions {
  uint32_t max_tokens = UINT32_MAX;
  std::vector<std::string> stop_strings;
  uint64_t sequence = 0;  // numbers answers to one prompt: each draws other random numbers
  // Gets the text as it becomes certain, in whole characters; returns false to end the answer.
  std::function<bool(const std::string& text)> on_text;
  // Asked between tokens, and between batches of the prompt.
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

  // Brings the model to exactly these tokens, and returns how many of them needed no computing. After each of the given
  // numbers of tokens a snapshot is kept, from which a later, different continuation can start. Throws Error(kLimit)
  // when the tokens don't fit into the context; the session is then as before. `interrupted` as in GenerateOptions: the
  // tokens computed so far stay, and false is returned in `complete`.
  size_t synchronize(std::span<const int32_t> tokens, std::span<const size_t> snapshot_after = {},
                     const std::function<bool()>& interrupted = {}, bool* complete = nullptr);

  // Distribution of the token after tokens(), [n_vocab]; of use after synchronize or append.
  std::span<const float> logits() const { return logits_; }
  std::span<const int32_t> tokens() const { return tokens_; }

  // Answers a prompt: synchronizes, then samples until an end-of-generation token, a stop string, the limit, a full
  // context or an interrupt. The answer's tokens stay in the session.
  Answer generate(std::span<const int32_t> prompt, std::span<const size_t> snapshot_after,
                  const decode::Sampler& sampler, const GenerateOptions& options);

  void clear();

 private:
  struct Kept {
    std::vector<int32_t> tokens;
    state::Snapshot snapshot;
  };

  // As if no token had been seen; snapshots stay.
  void forget();
  // Goes back to the longest state that is a prefix of `tokens`; returns its length.
  size_t rewind_to_prefix(std::span<const int32_t> tokens);
  void compute(std::span<const int32_t> tokens, std::span<const size_t> snapshot_after);

  Engine& engine_;
  state::Sequence sequence_;
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;
  std::deque<Kept> kept_;  // oldest first, few
};

}  // namespace sluice
