#include "experts/simulate.h"

#include <fmt/core.h>

#include <algorithm>
#include <queue>
#include <utility>

#include "base/error.h"
#include "experts/policy.h"
#include "experts/slot_map.h"

namespace sluice::experts {

namespace {

// What one layer needs in one step.
struct Need {
  uint32_t layer = 0, tokens = 0;
  bool first_of_step = false;
  std::vector<uint32_t> experts, uses;
};

// Walks over a trace, step by step and layer by layer.
class Needs {
 public:
  Needs(const Trace& trace, uint32_t step_tokens) : trace_(trace), step_(step_tokens), uses_(trace.n_experts) {}

  // The next, or nullptr; valid until the next call.
  const Need* next() {
    if (layer_ == trace_.n_layers) {
      layer_ = 0;
      token_ += need_.tokens;
    }
    if (token_ >= trace_.tokens()) return nullptr;
    need_.layer = layer_++;
    need_.first_of_step = need_.layer == 0;
    need_.tokens = static_cast<uint32_t>(std::min<size_t>(step_, trace_.tokens() - token_));
    need_.experts.clear();
    for (size_t t = token_; t < token_ + need_.tokens; ++t)
      for (const uint16_t expert : trace_.at(t, need_.layer))
        if (uses_[expert]++ == 0) need_.experts.push_back(expert);
    need_.uses.clear();
    for (const uint32_t expert : need_.experts) need_.uses.push_back(std::exchange(uses_[expert], 0));
    return &need_;
  }

 private:
  const Trace& trace_;
  size_t token_ = 0;
  uint32_t step_, layer_ = 0;
  std::vector<uint32_t> uses_;  // [n_experts], zero between calls
  Need need_;
};

void check_fits(const Need& need, uint32_t slots) {
  if (need.experts.size() > slots)
    fail(ErrorKind::kUsage, "{} slots: layer {} needs {} experts in one step; give at least as many slots", slots,
         need.layer, need.experts.size());
}

class Counter {
 public:
  explicit Counter(const Trace& trace) : trace_(trace) {}
  void hit() { ++result.hits; }
  void miss(uint32_t layer) {
    ++result.misses;
    if (!trace_.expert_bytes.empty()) result.bytes += trace_.expert_bytes[layer];
  }
  Replay result;

 private:
  const Trace& trace_;
};

Replay replay_policy(const Trace& trace, std::string_view policy, uint32_t slots, uint32_t step_tokens) {
  SlotMap map(trace.n_experts, std::vector<uint32_t>(trace.n_layers, 0), {slots},
              make_policy(policy, trace.n_layers * trace.n_experts));
  Counter count(trace);
  Needs needs(trace, step_tokens);
  while (const Need* need = needs.next()) {
    check_fits(*need, slots);
    if (need->first_of_step) map.advance(need->tokens);
    const auto places = map.acquire(need->layer, need->experts, need->uses);
    for (const SlotMap::Place& place : places) {
      if (place.outcome == SlotMap::Outcome::kReady) {
        count.hit();
      } else {
        count.miss(need->layer);
        map.loaded(place.slot);
      }
    }
    for (const SlotMap::Place& place : places) map.release(place.slot);
  }
  return count.result;
}

// For each expert of each need, in order: the number of the need that wants it next, or kNever.
constexpr uint32_t kNever = UINT32_MAX;
std::vector<uint32_t> next_needs(const Trace& trace, uint32_t step_tokens) {
  std::vector<uint32_t> next;
  std::vector<size_t> last(size_t{trace.n_layers} * trace.n_experts, SIZE_MAX);  // where in `next` a unit was last
  Needs needs(trace, step_tokens);
  uint32_t number = 0;
  for (; const Need* need = needs.next(); ++number) {
    for (const uint32_t expert : need->experts) {
      size_t& before = last[size_t{need->layer} * trace.n_experts + expert];
      if (before != SIZE_MAX) next[before] = number;
      before = next.size();
      next.push_back(kNever);
    }
  }
  return next;
}

Replay replay_clairvoyant(const Trace& trace, uint32_t slots, uint32_t step_tokens) {
  const std::vector<uint32_t> next = next_needs(trace, step_tokens);
  // Of each unit in a slot, the need that wants it next; its other entries in the queue are out of date.
  std::vector<uint32_t> due(size_t{trace.n_layers} * trace.n_experts);
  std::vector<bool> resident(due.size());
  std::priority_queue<std::pair<uint32_t, uint32_t>> furthest;  // need, unit
  uint32_t free = slots, number = 0;
  size_t at = 0;
  Counter count(trace);
  Needs needs(trace, step_tokens);
  for (; const Need* need = needs.next(); ++number) {
    check_fits(*need, slots);
    uint32_t missing = 0;
    for (const uint32_t expert : need->experts) {
      const uint32_t unit = need->layer * trace.n_experts + expert;
      if (resident[unit])
        count.hit();
      else
        count.miss(need->layer), ++missing;
    }
    // Those of this need are due now, so they are the last in the queue and never go.
    for (; missing > free; ++free) {
      while (!resident[furthest.top().second] || due[furthest.top().second] != furthest.top().first) furthest.pop();
      resident[furthest.top().second] = false;
      furthest.pop();
    }
    free -= missing;
    for (const uint32_t expert : need->experts) {
      const uint32_t unit = need->layer * trace.n_experts + expert;
      resident[unit] = true;
      due[unit] = next[at++];
      furthest.push({due[unit], unit});
    }
  }
  return count.result;
}

}  // namespace

Replay replay(const Trace& trace, std::string_view policy, uint32_t slots, uint32_t step_tokens) {
  return policy == kClairvoyant ? replay_clairvoyant(trace, slots, step_tokens)
                                : replay_policy(trace, policy, slots, step_tokens);
}

}  // namespace sluice::experts
