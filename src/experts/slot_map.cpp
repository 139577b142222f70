#include "experts/slot_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace sluice::experts {

namespace {

constexpr double kMissHalfLife = 256;  // tokens
// How much less than the leader's misses must be to take its place.
constexpr double kClearlyLess = 0.98;

}  // namespace

SlotMap::SlotMap(uint32_t n_experts, std::vector<uint32_t> class_of_layer, std::vector<uint32_t> slots_of_class,
                 std::unique_ptr<Policy> policy)
    : n_experts_(n_experts), class_of_layer_(std::move(class_of_layer)), policy_(std::move(policy)) {
  const size_t units = class_of_layer_.size() * n_experts_;
  slot_of_.assign(units, kNone);
  worth_.assign(units, -std::numeric_limits<double>::infinity());
  obtainable_.resize(slots_of_class.size());
  for (uint32_t c = 0; c < slots_of_class.size(); ++c) {
    first_slot_.push_back(n_slots());
    slots_.resize(slots_.size() + slots_of_class[c], Slot{.slot_class = c});
    obtainable_[c].in_use = slots_of_class[c];
    obtainable_[c].heap.reserve(slots_of_class[c]);  // a release allocates nothing
    for (uint32_t s = first_slot_[c]; s < n_slots(); ++s) offer(s);
  }
  first_slot_.push_back(n_slots());
  complete_ = has_slots_for_all();
  for (const std::string& name : policy_->contestants())
    contestants_.push_back({.map = std::make_unique<SlotMap>(n_experts_, class_of_layer_, slots_of_class,
                                                             make_policy(name, static_cast<uint32_t>(units))),
                            .places = std::vector<Place>(n_experts_)});
}

bool SlotMap::has_slots_for_all() const {
  std::vector<uint64_t> needed(obtainable_.size());
  for (const uint32_t c : class_of_layer_) needed[c] += n_experts_;
  for (size_t c = 0; c < needed.size(); ++c)
    if (obtainable_[c].in_use < needed[c]) return false;
  return true;
}

void SlotMap::advance(uint32_t tokens) {
  now_ += tokens;
  for (Contestant& contestant : contestants_) {
    contestant.map->advance(tokens);
    contestant.misses *= std::exp2(-(tokens / kMissHalfLife));
  }
}

void SlotMap::count(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) {
  if (contestants_.empty()) {
    for (size_t i = 0; i < experts.size(); ++i) {
      const uint32_t u = unit(layer, experts[i]);
      worth_[u] = policy_->used(u, uses[i], slot_of_[u] != kNone, now_);
    }
    return;
  }
  if (complete_) {
    for (const uint32_t expert : experts) worth_[unit(layer, expert)] = now_;
    return;
  }
  for (Contestant& contestant : contestants_) play(contestant, layer, experts, uses);
  size_t best = leader_;
  for (size_t c = 0; c < contestants_.size(); ++c)
    if (contestants_[c].misses < contestants_[best].misses) best = c;
  if (!following_ || contestants_[best].misses < kClearlyLess * contestants_[leader_].misses) {
    following_ = true;
    leader_ = best;
    follow(contestants_[best]);
  }
  for (const uint32_t expert : experts)
    worth_[unit(layer, expert)] = contestants_[leader_].map->worth_[unit(layer, expert)];
}

void SlotMap::play(Contestant& contestant, uint32_t layer, std::span<const uint32_t> experts,
                   std::span<const uint32_t> uses) {
  SlotMap& map = *contestant.map;
  const std::span<Place> places = std::span(contestant.places).first(experts.size());
  map.acquire(layer, experts, uses, places);
  for (size_t i = 0; i < experts.size(); ++i) {
    contestant.misses += places[i].outcome != Outcome::kReady;
    if (places[i].outcome == Outcome::kLoad) map.loaded(places[i].slot);
  }
  for (const Place& place : places)
    if (place.outcome != Outcome::kLater) map.release(place.slot);
}

void SlotMap::follow(const Contestant& contestant) {
  // Of those that it has not seen used yet, the map itself may know more.
  for (size_t u = 0; u < worth_.size(); ++u)
    if (const double worth = contestant.map->worth_[u]; std::isfinite(worth)) worth_[u] = worth;
  for (Obtainable& obtainable : obtainable_)
    for (size_t at = obtainable.heap.size(); at-- > 0;) sift_down(obtainable, at);
}

std::vector<SlotMap::Place> SlotMap::acquire(uint32_t layer, std::span<const uint32_t> experts,
                                             std::span<const uint32_t> uses) {
  std::vector<Place> places(experts.size());
  acquire(layer, experts, uses, places);
  return places;
}

void SlotMap::acquire(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses,
                      std::span<Place> places) {
  std::ranges::fill(places, Place{Outcome::kLater, kNone});
  for (size_t i = 0; i < experts.size(); ++i) {
    const uint32_t slot = slot_of_[unit(layer, experts[i])];
    if (slot == kNone) continue;
    hold(slot);
    places[i] = {slots_[slot].state == State::kReady ? Outcome::kReady : Outcome::kArriving, slot};
  }
  // Those that were there are held now, so none that is to be had changes its worth, which is its place in the heap.
  if (!uses.empty()) count(layer, experts, uses);
  for (size_t i = 0; i < experts.size(); ++i) {
    if (places[i].outcome != Outcome::kLater) continue;
    const auto slot = give_slot(unit(layer, experts[i]), class_of_layer_[layer]);
    if (!slot) break;
    places[i] = {Outcome::kLoad, *slot};
  }
}

std::optional<SlotMap::Place> SlotMap::acquire_ahead(uint32_t layer, uint32_t expert, uint32_t spare) {
  const uint32_t u = unit(layer, expert), slot_class = class_of_layer_[layer];
  if (const uint32_t slot = slot_of_[u]; slot != kNone) {
    hold(slot);
    return Place{slots_[slot].state == State::kReady ? Outcome::kReady : Outcome::kArriving, slot};
  }
  if (available(slot_class) <= spare) return std::nullopt;
  const auto slot = give_slot(u, slot_class);
  if (!slot) return std::nullopt;
  return Place{Outcome::kLoad, *slot};
}

std::optional<uint32_t> SlotMap::place(uint32_t layer, uint32_t expert) {
  const uint32_t u = unit(layer, expert);
  const std::vector<uint32_t>& heap = obtainable_[class_of_layer_[layer]].heap;
  if (slot_of_[u] != kNone || heap.empty() || slots_[heap.front()].state != State::kEmpty) return std::nullopt;
  const uint32_t slot = heap.front();
  withdraw(slot);
  read_into(slot, u);
  return slot;
}

std::optional<uint32_t> SlotMap::give_slot(uint32_t unit, uint32_t slot_class) {
  if (available(slot_class) == 0) return std::nullopt;
  const uint32_t slot = obtainable_[slot_class].heap.front();
  hold(slot);
  vacate(slot);
  read_into(slot, unit);
  return slot;
}

void SlotMap::read_into(uint32_t slot, uint32_t unit) {
  slots_[slot].state = State::kLoading;
  slots_[slot].unit = unit;
  slot_of_[unit] = slot;
}

void SlotMap::vacate(uint32_t slot) {
  if (slots_[slot].unit != kNone) slot_of_[slots_[slot].unit] = kNone;
  slots_[slot].unit = kNone;
  slots_[slot].state = State::kEmpty;
}

void SlotMap::hold(uint32_t slot) {
  if (slots_[slot].holders++ == 0 && slots_[slot].heap_at != kNone) withdraw(slot);
}

void SlotMap::release(uint32_t slot) {
  if (--slots_[slot].holders == 0 && slots_[slot].state != State::kLoading) offer(slot);
}

void SlotMap::loaded(uint32_t slot) {
  slots_[slot].state = State::kReady;
  if (slots_[slot].holders == 0) offer(slot);
}

void SlotMap::failed(uint32_t slot) {
  vacate(slot);
  if (slots_[slot].holders == 0) offer(slot);
}

std::optional<uint32_t> SlotMap::retire(uint32_t slot_class) {
  Obtainable& obtainable = obtainable_[slot_class];
  if (obtainable.in_use == 1 || obtainable.heap.empty()) return std::nullopt;
  const uint32_t slot = obtainable.heap.front();
  withdraw(slot);
  vacate(slot);
  slots_[slot].state = State::kRetired;
  --obtainable.in_use;
  complete_ = has_slots_for_all();
  for (Contestant& contestant : contestants_) contestant.map->retire(slot_class);
  return slot;
}

bool SlotMap::goes_before(uint32_t a, uint32_t b) const {
  const bool a_empty = slots_[a].state == State::kEmpty, b_empty = slots_[b].state == State::kEmpty;
  if (a_empty != b_empty) return a_empty;
  if (!a_empty) {
    const double worth_a = worth_[slots_[a].unit], worth_b = worth_[slots_[b].unit];
    if (worth_a != worth_b) return worth_a < worth_b;
  }
  return a < b;
}

void SlotMap::offer(uint32_t slot) {
  Obtainable& obtainable = obtainable_[slots_[slot].slot_class];
  obtainable.heap.push_back(slot);
  sift_up(obtainable, obtainable.heap.size() - 1);
}

void SlotMap::withdraw(uint32_t slot) {
  Obtainable& obtainable = obtainable_[slots_[slot].slot_class];
  const size_t at = slots_[slot].heap_at;
  const uint32_t last = obtainable.heap.back();
  obtainable.heap.pop_back();
  slots_[slot].heap_at = kNone;
  if (last == slot) return;
  place_at(obtainable, at, last);
  sift_up(obtainable, at);
  sift_down(obtainable, slots_[last].heap_at);
}

void SlotMap::place_at(Obtainable& obtainable, size_t at, uint32_t slot) {
  obtainable.heap[at] = slot;
  slots_[slot].heap_at = static_cast<uint32_t>(at);
}

void SlotMap::sift_up(Obtainable& obtainable, size_t at) {
  const uint32_t slot = obtainable.heap[at];
  for (; at > 0 && goes_before(slot, obtainable.heap[(at - 1) / 2]); at = (at - 1) / 2)
    place_at(obtainable, at, obtainable.heap[(at - 1) / 2]);
  place_at(obtainable, at, slot);
}

void SlotMap::sift_down(Obtainable& obtainable, size_t at) {
  const std::vector<uint32_t>& heap = obtainable.heap;
  const uint32_t slot = heap[at];
  for (size_t child = 2 * at + 1; child < heap.size(); at = child, child = 2 * at + 1) {
    if (child + 1 < heap.size() && goes_before(heap[child + 1], heap[child])) ++child;
    if (!goes_before(heap[child], slot)) break;
    place_at(obtainable, at, heap[child]);
  }
  place_at(obtainable, at, slot);
}

std::optional<uint32_t> SlotMap::find(uint32_t layer, uint32_t expert) const {
  const uint32_t slot = slot_of_[unit(layer, expert)];
  return slot == kNone ? std::nullopt : std::optional(slot);
}

std::optional<uint32_t> SlotMap::resident(uint32_t slot) const {
  return slots_[slot].state == State::kReady ? std::optional(slots_[slot].unit) : std::nullopt;
}

}  // namespace sluice::experts
