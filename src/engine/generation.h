// What is asked of a step loop (step_loop.h), and what it tells while it answers. Plain data: neither HTTP nor JSON nor
// threads are known here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "decode/sampler.h"

namespace sluice {

// Why an answer ended.
enum class StopReason {
  kEndOfText,
  kLimit,
  kStopString,
  kInterrupted,  // cancelled by who asked
  kDeadline,     // the request's own time limit
  kShutdown,     // the program ends
};
const char* name_of(StopReason reason);  // "eos", "limit", "stop-string", "interrupt", "deadline", "shutdown"

// Why tokens of a prompt had to be computed that an earlier request had already seen, or that none had.
enum class CacheReason {
  kNothingToReuse,  // no earlier request has a prefix in common
  kWhole,           // everything but what must be computed for the next token came from the cache
  kExtended,        // an earlier request's tokens, and new ones behind them
  kDiverged,        // an earlier request is the same up to `diverged_at`
  kNoSnapshot,      // the same, but no state was kept between the place that served and `diverged_at`
  kEvicted,         // a state that would have served more had to make room
  kNotWanted,       // the request said so, or there is no cache
};
const char* name_of(CacheReason reason);  // "nothing to reuse", "whole", ...

struct TokenChance {
  int32_t token;
  float logprob;  // natural logarithm of its share in the softmax of the model's own logits
};

// Thinking is cut short after so many tokens.
struct ReasoningLimit {
  uint32_t tokens = 0;
  std::vector<int32_t> end;  // the tokens that are given then: the mark that ends the block
};

struct GenerationStats {
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;    // of those, not computed again
  size_t computed_tokens = 0;  // of the others, so far
  size_t answer_tokens = 0;
  CacheReason cache_reason = CacheReason::kNothingToReuse;
  size_t diverged_at = 0;        // tokens that an earlier request has in common
  std::vector<int32_t> instead;  // a few tokens that the earlier request had there
  double queue_seconds = 0;      // waiting for a slot
  double prompt_seconds = 0;     // computing the prompt, until the first token
  double answer_seconds = 0;     // the other tokens
  uint32_t slot = 0;
};

struct TokenEvent {
  int32_t token = 0;
  std::string text;   // what became certain with it, in whole characters; may be empty, or belong to earlier tokens
  float logprob = 0;  // of `token`; only where top_logprobs were asked for
  std::vector<TokenChance> likely;  // the likeliest tokens, best first
};

// Told on the loop's thread, in order: any number of progress(), then token()s, then one of done() and failed(). None
// may block or throw.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  virtual void progress(const GenerationStats&) {}  // after each step of the prompt
  virtual void token(const TokenEvent& event, const GenerationStats& stats) = 0;
  // `text`: what was held back until the end. `stop`: the stop string, where one ended it.
  virtual void done(StopReason reason, const std::string& text, const std::string& stop,
                    const GenerationStats& stats) = 0;
  virtual void failed(const Error& error, const GenerationStats& stats) = 0;
};

struct GenerationRequest {
  std::vector<int32_t> prompt;
  // Numbers of tokens of the prompt after which a later one may well differ: there a state is kept.
  std::vector<size_t> turn_starts;
  decode::SamplingParameters sampling;
  uint64_t sequence = 0;  // numbers answers to one prompt: each draws other random numbers
  uint32_t max_tokens = UINT32_MAX;
  std::vector<std::string> stop_strings;
  bool ignore_end = false;           // never end by itself
  std::optional<uint32_t> n_likely;  // give this many of the likeliest tokens with each, and its own logprob
  bool use_cache = true;             // take and leave states in the prompt cache
  std::optional<uint32_t> slot;      // only there
  std::optional<ReasoningLimit> reasoning_limit;  // the prompt opens a think block
  double answer_limit_s = 0;                      // end so long after the first token; 0: never
  double total_limit_s = 0;                       // end so long after submission, wherever it is; 0: never
};

}  // namespace sluice
