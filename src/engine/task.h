// One answer on its way: the tokens that are to be computed, the text that has become certain, and when it is over.
// Knows nothing of slots and passes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/detokenizer.h"
#include "decode/sampler.h"
#include "decode/stop_strings.h"
#include "engine/generation.h"

namespace sluice {

class Task {
 public:
  Task(uint64_t id, GenerationRequest request, std::shared_ptr<GenerationListener> listener,
       const chat::Tokenizer& tokenizer, decode::Sampler sampler);

  uint64_t id() const { return id_; }
  const GenerationRequest& request() const { return request_; }
  // Prompt and answer. Of these the model must have seen all before the next token can be chosen.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  bool answering() const { return tokens_.size() > request_.prompt.size(); }
  GenerationStats& stats() { return stats_; }
  const GenerationStats& stats() const { return stats_; }

  // A choice of the next token, given the model's logits after all of tokens(). Any thread may ask.
  struct Choice {
    int32_t token = 0;
    float logprob = 0;
    std::vector<TokenChance> likely;
  };
  Choice choose(std::span<const float> logits) const;
  // Takes it, and tells the listener; a reason when the answer is over. `full`: no more tokens fit into the context.
  std::optional<StopReason> take(Choice choice, size_t context);

  void started(double now);
  // Rows of the prompt have been computed.
  void computed(size_t rows);
  void tell_progress() const { listener_->progress(stats_); }
  std::optional<StopReason> over_time(double now) const;
  // The end; nothing may be asked afterwards.
  void finish(StopReason reason);
  void fail(const Error& error) { listener_->failed(error, stats_); }

 private:
  bool forced(Choice& choice);

  uint64_t id_;
  GenerationRequest request_;
  std::shared_ptr<GenerationListener> listener_;
  const chat::Tokenizer& tokenizer_;
  decode::Sampler sampler_;
  chat::Detokenizer detokenizer_;
  decode::StopStrings stops_;
  std::vector<int32_t> tokens_;
  std::string reasoning_tail_;  // where the end of a think block may be
  bool reasoning_ = false;      // the block is open
  size_t forced_ = 0;           // tokens of the block's end that were given
  double submitted_, started_ = 0, first_token_ = 0;
  GenerationStats stats_;
};

}  // namespace sluice
