#include "decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "decode/random.h"
#include "ops/math.h"

namespace sluice::decode {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void require(bool good, const char* name, double value, const char* limit) {
  if (!good) fail(ErrorKind::kUsage, "sampling parameter {} = {} must be {}", name, value, limit);
}

constexpr size_t kLanes = 16;  // compared side by side: a vocabulary is long

// No NaN and no +infinity.
bool all_below_infinity(std::span<const float> values) {
  uint32_t bad[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      bad[lane] |= !(values[i + lane] < std::numeric_limits<float>::infinity());
  for (; i < values.size(); ++i) bad[0] |= !(values[i] < std::numeric_limits<float>::infinity());
  return std::ranges::none_of(bad, [](uint32_t lane) { return lane != 0; });
}

// The first of the largest.
size_t index_of_largest(std::span<const float> values) {
  float largest[kLanes];
  std::ranges::fill(largest, kNever);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      largest[lane] = values[i + lane] > largest[lane] ? values[i + lane] : largest[lane];
  for (; i < values.size(); ++i) largest[0] = std::max(largest[0], values[i]);
  return static_cast<size_t>(std::ranges::find(values, *std::ranges::max_element(largest)) - values.begin());
}

}  // namespace

Sampler::Sampler(SamplingParameters parameters, size_t n_vocab, std::span<const int32_t> never)
    : parameters_(std::move(parameters)), n_vocab_(n_vocab), never_(never.begin(), never.end()) {
  const SamplingParameters& p = parameters_;
  require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", p.temperature, "0 or above");
  require(p.top_p >= 0 && p.top_p <= 1, "top_p", p.top_p, "between 0 and 1");
  require(p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "between 0 and 1");
  require(p.repeat_penalty > 0 && std::isfinite(p.repeat_penalty), "repeat_penalty", p.repeat_penalty, "above 0");
  require(std::isfinite(p.presence_penalty), "presence_penalty", p.presence_penalty, "a number");
  require(std::isfinite(p.frequency_penalty), "frequency_penalty", p.frequency_penalty, "a number");
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || static_cast<size_t>(id) >= n_vocab)
      fail(ErrorKind::kUsage, "logit bias for token {}: the vocabulary has tokens 0 to {}", id, n_vocab - 1);
    if (std::isnan(bias)) fail(ErrorKind::kUsage, "logit bias for token {} is not a number", id);
  }
}

void Sampler::penalize(std::span<const int32_t> history, std::vector<float>& logits) const {
  const SamplingParameters& p = parameters_;
  if (p.repeat_penalty == 1.0f && p.presence_penalty == 0.0f && p.frequency_penalty == 0.0f) return;
  std::unordered_map<int32_t, uint32_t> counts;
  for (const int32_t id : history.last(std::min<size_t>(history.size(), p.penalty_window))) ++counts[id];
  for (const auto& [id, count] : counts) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / p.repeat_penalty : logit * p.repeat_penalty;
    logit -= static_cast<float>(count) * p.frequency_penalty + p.presence_penalty;
  }
}

// The top-k tokens, likeliest first, the lower id first on a tie, with their weights.
std::vector<Sampler::Candidate> Sampler::candidates(const std::vector<float>& logits) const {
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const size_t keep = parameters_.top_k == 0 ? n_vocab_ : std::min<size_t>(parameters_.top_k, n_vocab_);
  std::vector<Candidate> list;  // a heap, the least likely in front: nearly all tokens are seen to be less at a glance
  list.reserve(keep);
  float least = kNever;  // not above this: no candidate
  for (size_t id = 0; id < n_vocab_; ++id) {
    if (logits[id] <= least) continue;
    if (list.size() == keep) {
      std::ranges::pop_heap(list, likelier);
      list.pop_back();
    }
    list.push_back({static_cast<int32_t>(id), logits[id], 0.0});
    std::ranges::push_heap(list, likelier);
    if (list.size() == keep) least = list.front().logit;
  }
  std::ranges::sort_heap(list, likelier);
  for (Candidate& c : list) c.weight = ops::exp(double{c.logit} - list[0].logit);
  return list;
}

void Sampler::keep_top_p(std::vector<Candidate>& list) const {
  double total = 0.0, mass = 0.0;
  for (const Candidate& c : list) total += c.weight;
  for (size_t i = 0; i < list.size(); ++i) {
    mass += list[i].weight;
    if (mass >= parameters_.top_p * total) return list.resize(i + 1);
  }
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history, uint32_t position,
                        uint64_t sequence) const {
  std::vector<float> adjusted(logits.begin(), logits.end());
  if (!all_below_infinity(logits))
    fail(ErrorKind::kInternal, "the model's logits at position {} are not finite; is the model file damaged?",
         position);
  for (const auto& [id, bias] : parameters_.logit_bias) adjusted[static_cast<size_t>(id)] += bias;
  penalize(history, adjusted);
  for (const int32_t id : never_) adjusted[static_cast<size_t>(id)] = kNever;
  if (parameters_.temperature == 0.0f) return static_cast<int32_t>(index_of_largest(adjusted));

  std::vector<Candidate> list = candidates(adjusted);
  if (list.empty()) fail(ErrorKind::kUsage, "every token is forbidden by a logit bias");
  if (parameters_.top_p < 1.0f) keep_top_p(list);
  std::erase_if(list, [&](const Candidate& c) { return c.weight < parameters_.min_p; });
  double total = 0.0;
  for (Candidate& c : list) {
    c.weight = ops::exp((double{c.logit} - list[0].logit) / parameters_.temperature);
    total += c.weight;
  }
  double left = uniform(parameters_.seed, sequence, position, 0) * total;
  for (const Candidate& c : list) {
    left -= c.weight;
    if (left < 0.0) return c.id;
  }
  return list.back().id;
}

}  // namespace sluice::decode
