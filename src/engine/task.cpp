#include "engine/task.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "base/system.h"
#include "ops/math.h"

namespace sluice {

namespace {

constexpr std::string_view kEndOfReasoning = "</think>";

// Logarithms of shares in the softmax of the model's own logits: what is told of a token does not depend on how it was
// sampled.
std::vector<TokenChance> likeliest(std::span<const float> logits, uint32_t n, int32_t chosen, float* of_chosen) {
  const double best = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += ops::exp(double{logit} - best);
  const double total = best + ops::log(sum);
  const auto logprob = [&](int32_t id) { return static_cast<float>(double{logits[static_cast<size_t>(id)]} - total); };
  *of_chosen = logprob(chosen);
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + static_cast<ptrdiff_t>(std::min<size_t>(n, ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  std::vector<TokenChance> out;
  for (auto id = ids.begin(); id != end; ++id) out.push_back({*id, logprob(*id)});
  return out;
}

}  // namespace

Task::Task(uint64_t id, GenerationRequest request, std::shared_ptr<GenerationListener> listener,
           const chat::Tokenizer& tokenizer, decode::Sampler sampler)
    : id_(id),
      request_(std::move(request)),
      listener_(std::move(listener)),
      tokenizer_(tokenizer),
      sampler_(std::move(sampler)),
      detokenizer_(tokenizer),
      stops_(request_.stop_strings),
      tokens_(request_.prompt),
      reasoning_(request_.reasoning_limit.has_value()),
      submitted_(now_seconds()) {
  stats_.prompt_tokens = tokens_.size();
}

void Task::started(double now) {
  if (started_ > 0) return;  // once more, after it was put back
  started_ = now;
  stats_.queue_seconds = now - submitted_;
}

void Task::computed(size_t rows) {
  // Not more than there are: what is computed once more, after it was put back, counts once.
  stats_.computed_tokens = std::min(stats_.computed_tokens + rows, stats_.prompt_tokens - stats_.cached_tokens);
}

Task::Choice Task::choose(std::span<const float> logits) const {
  Choice choice;
  choice.token = sampler_.sample(logits, tokens_, static_cast<uint32_t>(tokens_.size()), request_.sequence);
  if (request_.n_likely) choice.likely = likeliest(logits, *request_.n_likely, choice.token, &choice.logprob);
  return choice;
}

// Thinking that has used up its tokens is ended: what the model would say is replaced.
bool Task::forced(Choice& choice) {
  if (!reasoning_) return false;
  const ReasoningLimit& limit = *request_.reasoning_limit;
  if (forced_ == 0 && stats_.answer_tokens < limit.tokens) return false;
  choice.token = limit.end[forced_++];
  if (forced_ == limit.end.size()) reasoning_ = false;
  return true;
}

std::optional<StopReason> Task::take(Choice choice, size_t context) {
  const double now = now_seconds();
  if (first_token_ == 0) {
    first_token_ = now;
    stats_.prompt_seconds = now - started_;
  }
  stats_.answer_seconds = now - first_token_;
  if (request_.max_tokens == 0) return StopReason::kLimit;
  if (!forced(choice) && !request_.ignore_end && tokenizer_.is_end_of_generation(choice.token))
    return StopReason::kEndOfText;
  tokens_.push_back(choice.token);
  ++stats_.answer_tokens;
  TokenEvent event{choice.token, detokenizer_.push(choice.token), choice.logprob, std::move(choice.likely)};
  if (reasoning_ && forced_ == 0) {
    reasoning_tail_ += event.text;
    if (reasoning_tail_.find(kEndOfReasoning) != std::string::npos) reasoning_ = false;
    if (reasoning_tail_.size() > kEndOfReasoning.size())
      reasoning_tail_.erase(0, reasoning_tail_.size() - kEndOfReasoning.size());
  }
  event.text = stops_.push(event.text);
  listener_->token(event, stats_);
  if (stops_.stopped()) return StopReason::kStopString;
  if (stats_.answer_tokens >= request_.max_tokens || tokens_.size() > context) return StopReason::kLimit;
  return std::nullopt;
}

std::optional<StopReason> Task::over_time(double now) const {
  if (request_.total_limit_s > 0 && now - submitted_ > request_.total_limit_s) return StopReason::kDeadline;
  if (request_.answer_limit_s > 0 && first_token_ > 0 && now - first_token_ > request_.answer_limit_s)
    return StopReason::kDeadline;
  return std::nullopt;
}

void Task::finish(StopReason reason) {
  const std::string text = stops_.stopped() ? "" : stops_.push(detokenizer_.finish()) + stops_.finish();
  listener_->done(reason, text, stops_.matched(), stats_);
}

}  // namespace sluice
