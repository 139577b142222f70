// The slot map against a slow, obvious model of it: tens of thousands of random steps for each size of bank, with bytes
// that tell whose they are in every slot.
#include "experts/slot_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace sluice::experts {
namespace {

using Outcome = SlotMap::Outcome;

std::unique_ptr<Policy> lru(uint32_t n_units) { return make_policy("lru", n_units); }

// One class of slots for all layers.
SlotMap one_class(uint32_t n_layers, uint32_t n_experts, uint32_t n_slots) {
  return {n_experts, std::vector<uint32_t>(n_layers, 0), {n_slots}, lru(n_layers * n_experts)};
}

const std::vector<uint32_t> kOnce(64, 1);

std::vector<SlotMap::Place> use(SlotMap& map, uint32_t layer, const std::vector<uint32_t>& experts) {
  return map.acquire(layer, experts, std::span(kOnce).first(experts.size()));
}

// Uses experts and lets go of them; returns how many had to be loaded.
uint32_t visit(SlotMap& map, uint32_t layer, const std::vector<uint32_t>& experts) {
  uint32_t loads = 0;
  const auto places = use(map, layer, experts);
  for (const auto& place : places) {
    EXPECT_NE(place.outcome, Outcome::kLater);
    if (place.outcome != Outcome::kLoad) continue;
    map.loaded(place.slot);
    ++loads;
  }
  for (const auto& place : places) map.release(place.slot);
  return loads;
}

// ---- single functions

TEST(SlotMap, NumbersUnitsAndSlotsThroughAllLayersAndClasses) {
  const SlotMap map(10, {0, 1, 0}, {4, 3}, lru(30));
  EXPECT_EQ(map.n_experts(), 10u);
  EXPECT_EQ(map.n_layers(), 3u);
  EXPECT_EQ(map.n_slots(), 7u);
  EXPECT_EQ(map.unit(2, 5), 25u);
  EXPECT_EQ(map.class_of_layer(1), 1u);
  EXPECT_EQ(map.first_slot(0), 0u);
  EXPECT_EQ(map.first_slot(1), 4u);
  EXPECT_EQ(map.available(0), 4u);
  EXPECT_EQ(map.available(1), 3u);
}

TEST(SlotMap, AcquireLoadsWhatIsNotThereAndFindsWhatIs) {
  SlotMap map = one_class(1, 8, 4);
  const auto first = use(map, 0, {3, 5});
  EXPECT_EQ(first[0].outcome, Outcome::kLoad);
  EXPECT_EQ(map.find(0, 3), first[0].slot);
  EXPECT_EQ(map.resident(first[0].slot), std::nullopt);
  const auto second = use(map, 0, {5, 3});
  EXPECT_EQ(second[1].outcome, Outcome::kArriving);
  EXPECT_EQ(second[1].slot, first[0].slot);
  map.loaded(first[0].slot);
  EXPECT_EQ(map.resident(first[0].slot), map.unit(0, 3));
  EXPECT_EQ(use(map, 0, {3})[0].outcome, Outcome::kReady);
  EXPECT_EQ(map.find(0, 4), std::nullopt);
}

// The classic fault of slot banks: a victim that the same call needs further on.
TEST(SlotMap, AcquireHoldsAllThatIsThereBeforeItGivesSlotsAway) {
  SlotMap map = one_class(1, 8, 3);
  visit(map, 0, {0});  // the least recently used, and wanted last
  visit(map, 0, {1});
  visit(map, 0, {2});
  const uint32_t slot = *map.find(0, 0);
  const auto places = use(map, 0, {7, 0});
  EXPECT_EQ(places[1].outcome, Outcome::kReady);
  EXPECT_EQ(places[1].slot, slot);
  EXPECT_EQ(places[0].outcome, Outcome::kLoad);
  EXPECT_NE(places[0].slot, slot);
}

TEST(SlotMap, AcquireSaysLaterOnlyWhenEverySlotIsHeld) {
  SlotMap map = one_class(1, 8, 2);
  const auto places = use(map, 0, {0, 1, 2});
  EXPECT_EQ(places[1].outcome, Outcome::kLoad);
  EXPECT_EQ(places[2].outcome, Outcome::kLater);
  map.loaded(places[0].slot);
  EXPECT_EQ(use(map, 0, {2})[0].outcome, Outcome::kLater);
  map.release(places[0].slot);
  const auto again = map.acquire(0, std::vector<uint32_t>{2}, {});
  EXPECT_EQ(again[0].outcome, Outcome::kLoad);
  EXPECT_EQ(again[0].slot, places[0].slot);
}

TEST(SlotMap, AcquireAheadLeavesSpareSlotsAlone) {
  SlotMap map = one_class(1, 8, 4);
  EXPECT_EQ(map.acquire_ahead(0, 1, 4), std::nullopt);
  const auto place = map.acquire_ahead(0, 1, 3);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->outcome, Outcome::kLoad);
  EXPECT_EQ(map.acquire_ahead(0, 2, 3), std::nullopt);
  EXPECT_EQ(map.acquire_ahead(0, 1, 3)->outcome, Outcome::kArriving);  // it is there: takes no slot
  map.loaded(place->slot);
  EXPECT_EQ(map.acquire_ahead(0, 1, 3)->outcome, Outcome::kReady);
}

TEST(SlotMap, PlaceTakesEmptySlotsOnly) {
  SlotMap map = one_class(1, 8, 2);
  visit(map, 0, {0});
  const auto slot = map.place(0, 5);
  ASSERT_TRUE(slot);
  EXPECT_FALSE(map.held(*slot));
  EXPECT_EQ(map.find(0, 5), slot);
  EXPECT_EQ(map.place(0, 5), std::nullopt);  // it has a slot
  EXPECT_EQ(map.place(0, 6), std::nullopt);  // the other slot holds an expert
  map.loaded(*slot);
  EXPECT_EQ(map.resident(*slot), map.unit(0, 5));
  EXPECT_EQ(map.available(0), 2u);
}

TEST(SlotMap, FailedLeavesAnEmptySlotThatIsHadAgainAfterRelease) {
  SlotMap map = one_class(1, 8, 1);
  const auto places = use(map, 0, {0});
  map.failed(places[0].slot);
  EXPECT_EQ(map.find(0, 0), std::nullopt);
  EXPECT_EQ(map.resident(places[0].slot), std::nullopt);
  EXPECT_EQ(use(map, 0, {0})[0].outcome, Outcome::kLater);  // those who waited for it still hold it
  map.release(places[0].slot);
  EXPECT_EQ(use(map, 0, {0})[0].outcome, Outcome::kLoad);
}

TEST(SlotMap, RetireTakesTheLeastWorthyAndLeavesOne) {
  SlotMap map = one_class(1, 8, 3);
  visit(map, 0, {0});
  visit(map, 0, {1});
  visit(map, 0, {2});
  const uint32_t slot = *map.find(0, 0);
  EXPECT_EQ(map.retire(0), slot);
  EXPECT_EQ(map.find(0, 0), std::nullopt);
  EXPECT_EQ(map.available(0), 2u);
  const auto held = use(map, 0, {1, 2});
  EXPECT_EQ(map.retire(0), std::nullopt);
  for (const auto& place : held) map.release(place.slot);
  EXPECT_TRUE(map.retire(0));
  EXPECT_EQ(map.retire(0), std::nullopt);
  EXPECT_EQ(map.available(0), 1u);
}

TEST(SlotMap, ReleaseBeforeTheReadEndedDoesNotGiveTheSlotAway) {
  SlotMap map = one_class(1, 8, 1);
  const auto place = *map.acquire_ahead(0, 0, 0);
  map.release(place.slot);
  EXPECT_EQ(map.available(0), 0u);
  EXPECT_EQ(use(map, 0, {1})[0].outcome, Outcome::kLater);
  map.loaded(place.slot);
  EXPECT_EQ(use(map, 0, {1})[0].outcome, Outcome::kLoad);
}

// ---- against the model

struct Shape {
  uint32_t n_experts, top_k;
  std::vector<uint32_t> class_of_layer, slots_of_class;
};

// What the map should be, with everything looked up by walking over everything.
class Naive {
 public:
  struct Slot {
    enum { kEmpty, kLoading, kReady, kRetired } state = kEmpty;
    uint32_t unit = 0, holders = 0, slot_class = 0;
  };

  Naive(const Shape& shape, std::unique_ptr<Policy> policy) : shape_(shape), policy_(std::move(policy)) {
    for (uint32_t c = 0; c < shape.slots_of_class.size(); ++c)
      for (uint32_t i = 0; i < shape.slots_of_class[c]; ++i) slots.push_back({.slot_class = c});
    const auto n_units = static_cast<uint32_t>(shape.class_of_layer.size()) * shape.n_experts;
    for (const std::string& name : policy_->contestants())
      contestants_.push_back({std::make_unique<Naive>(shape, make_policy(name, n_units)), 0});
  }

  void advance(uint32_t tokens) {
    now_ += tokens;
    for (Contestant& contestant : contestants_) {
      contestant.naive->advance(tokens);
      contestant.misses *= std::exp2(-(tokens / 256.0));
    }
  }
  std::optional<uint32_t> find(uint32_t unit) const {
    for (uint32_t s = 0; s < slots.size(); ++s)
      if ((slots[s].state == Slot::kLoading || slots[s].state == Slot::kReady) && slots[s].unit == unit) return s;
    return std::nullopt;
  }
  bool obtainable(uint32_t slot, uint32_t slot_class) const {
    const Slot& s = slots[slot];
    return s.slot_class == slot_class && s.holders == 0 && (s.state == Slot::kEmpty || s.state == Slot::kReady);
  }
  uint32_t available(uint32_t slot_class) const {
    uint32_t n = 0;
    for (uint32_t s = 0; s < slots.size(); ++s) n += obtainable(s, slot_class);
    return n;
  }
  std::optional<uint32_t> victim(uint32_t slot_class) const {
    for (uint32_t s = 0; s < slots.size(); ++s)
      if (obtainable(s, slot_class) && slots[s].state == Slot::kEmpty) return s;
    std::optional<uint32_t> best;
    for (uint32_t s = 0; s < slots.size(); ++s)
      if (obtainable(s, slot_class) && (!best || worth(slots[s].unit) < worth(slots[*best].unit))) best = s;
    return best;
  }
  SlotMap::Place hold(uint32_t slot) {
    ++slots[slot].holders;
    return {slots[slot].state == Slot::kReady ? Outcome::kReady : Outcome::kArriving, slot};
  }
  SlotMap::Place give(uint32_t unit, uint32_t slot_class) {
    const auto slot = victim(slot_class);
    if (!slot) return {Outcome::kLater, UINT32_MAX};
    slots[*slot] = {Slot::kLoading, unit, 1, slot_class};
    return {Outcome::kLoad, *slot};
  }
  std::vector<SlotMap::Place> acquire(uint32_t layer, std::span<const uint32_t> experts,
                                      std::span<const uint32_t> uses) {
    std::map<size_t, SlotMap::Place> places;
    for (size_t i = 0; i < experts.size(); ++i) {
      const uint32_t unit = layer * shape_.n_experts + experts[i];
      const auto slot = find(unit);
      if (!uses.empty() && contestants_.empty()) worth_[unit] = policy_->used(unit, uses[i], slot.has_value(), now_);
      if (slot) places[i] = hold(*slot);
    }
    if (!uses.empty() && !contestants_.empty()) play(layer, experts, uses);
    std::vector<SlotMap::Place> out;
    for (size_t i = 0; i < experts.size(); ++i)
      out.push_back(places.contains(i) ? places[i]
                                       : give(layer * shape_.n_experts + experts[i], shape_.class_of_layer[layer]));
    return out;
  }
  double worth(uint32_t unit) const {
    if (played_) return contestants_[leader_].naive->worth(unit);
    const auto at = worth_.find(unit);
    return at == worth_.end() ? -std::numeric_limits<double>::infinity() : at->second;
  }

  std::optional<uint32_t> retire(uint32_t slot_class) {
    uint32_t in_use = 0;
    for (const Slot& slot : slots) in_use += slot.slot_class == slot_class && slot.state != Slot::kRetired;
    const auto slot = in_use > 1 ? victim(slot_class) : std::nullopt;
    if (!slot) return std::nullopt;
    slots[*slot].state = Slot::kRetired;
    for (Contestant& contestant : contestants_) contestant.naive->retire(slot_class);
    return slot;
  }

  std::vector<Slot> slots;

 private:
  struct Contestant {
    std::unique_ptr<Naive> naive;
    double misses;
  };

  // Every contestant takes the request by itself, and its reads end at once.
  void play(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) {
    if (complete()) {
      for (const uint32_t e : experts) worth_[layer * shape_.n_experts + e] = now_;
      return;
    }
    played_ = true;
    for (Contestant& contestant : contestants_) {
      const auto places = contestant.naive->acquire(layer, experts, uses);
      for (const auto& place : places) {
        contestant.misses += place.outcome != Outcome::kReady;
        if (place.outcome == Outcome::kLater) continue;
        contestant.naive->slots[place.slot].state = Slot::kReady;
        contestant.naive->slots[place.slot].holders = 0;
      }
    }
    const auto best = std::ranges::min_element(contestants_, {}, &Contestant::misses);
    if (best->misses < 0.98 * contestants_[leader_].misses) leader_ = static_cast<size_t>(best - contestants_.begin());
  }

  bool complete() const {
    std::map<uint32_t, int64_t> spare;
    for (const Slot& slot : slots) spare[slot.slot_class] += slot.state != Slot::kRetired;
    for (const uint32_t c : shape_.class_of_layer) spare[c] -= shape_.n_experts;
    return std::ranges::all_of(spare, [](const auto& entry) { return entry.second >= 0; });
  }

  double now_ = 0;
  std::vector<Contestant> contestants_;
  size_t leader_ = 0;
  bool played_ = false;  // from then on the leader's worth holds
  Shape shape_;
  std::unique_ptr<Policy> policy_;
  std::map<uint32_t, double> worth_;
};

// Random users of a map: they ask, wait, compute, fail and let go in any order, and look at the bytes of what they use.
class Users {
 public:
  Users(const Shape& shape, std::string_view policy, uint64_t seed)
      : shape_(shape),
        n_units_(static_cast<uint32_t>(shape.class_of_layer.size()) * shape.n_experts),
        map_(shape.n_experts, shape.class_of_layer, shape.slots_of_class, make_policy(policy, n_units_)),
        naive_(shape, make_policy(policy, n_units_)),
        random_(seed),
        bytes_(map_.n_slots(), kGarbage) {}

  void step() {
    const uint32_t what = below(100);
    if (what < 30) {
      ask();
    } else if (what < 40) {
      ask_again();
    } else if (what < 48) {
      ask_ahead();
    } else if (what < 50) {
      place();
    } else if (what < 72) {
      end_a_read(below(8) == 0);
    } else if (what < 98) {
      for (uint32_t n = 1 + below(8); n > 0; --n) let_go();
    } else if (what == 98) {
      map_.advance(3);
      naive_.advance(3);
    } else if (may_retire_ && below(100) == 0) {
      retire();
    }
    check();
  }

  void allow_retire() { may_retire_ = true; }

  void end() {
    while (!reading_.empty()) end_a_read(false);
    while (!held_.empty()) let_go();
    check();
    for (uint32_t c = 0; c < shape_.slots_of_class.size(); ++c)
      EXPECT_EQ(map_.available(c), shape_.slots_of_class[c] - retired_[c]);
  }

  uint64_t evictions = 0, laters = 0, failures = 0;

 private:
  static constexpr uint32_t kGarbage = UINT32_MAX;
  struct Held {
    uint32_t unit, slot;
    bool lost = false;  // its read failed
  };

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void take(uint32_t unit, const SlotMap::Place& place) {
    ASSERT_NE(place.outcome, Outcome::kLater);
    const uint32_t slot_class = shape_.class_of_layer[unit / shape_.n_experts];
    ASSERT_GE(place.slot, map_.first_slot(slot_class));
    ASSERT_LT(place.slot, map_.first_slot(slot_class) + shape_.slots_of_class[slot_class]);
    if (place.outcome == Outcome::kLoad) {
      for (const Held& held : held_) ASSERT_NE(held.slot, place.slot) << "a held slot was given away";
      ASSERT_FALSE(reading_.contains(place.slot)) << "a slot was given away that is being read into";
      evictions += bytes_[place.slot] != kGarbage;
      bytes_[place.slot] = kGarbage;
      reading_.insert({place.slot, unit});
    } else if (place.outcome == Outcome::kReady) {
      ASSERT_EQ(bytes_[place.slot], unit);
    } else {
      ASSERT_EQ(reading_.at(place.slot), unit);
    }
    held_.push_back({unit, place.slot});
  }

  void ask() {
    const uint32_t layer = below(static_cast<uint32_t>(shape_.class_of_layer.size()));
    std::vector<uint32_t> experts(shape_.n_experts);
    for (uint32_t e = 0; e < experts.size(); ++e) experts[e] = e;
    std::shuffle(experts.begin(), experts.end(), random_);
    experts.resize(below(4) == 0 ? 1 + below(shape_.n_experts) : shape_.top_k);
    std::vector<uint32_t> uses;
    for (size_t i = 0; i < experts.size(); ++i) uses.push_back(1 + below(3));
    acquire(layer, experts, uses);
  }

  void ask_again() {
    if (waiting_.empty()) return;
    const auto [layer, experts] = waiting_.back();
    waiting_.pop_back();
    acquire(layer, experts, {});
  }

  void acquire(uint32_t layer, const std::vector<uint32_t>& experts, std::span<const uint32_t> uses) {
    std::map<uint32_t, uint32_t> there;
    for (const uint32_t e : experts)
      if (const auto slot = map_.find(layer, e)) there[e] = *slot;
    const auto expected = naive_.acquire(layer, experts, uses);
    const auto places = map_.acquire(layer, experts, uses);
    std::set<uint32_t> distinct;
    std::vector<uint32_t> later;
    for (size_t i = 0; i < experts.size(); ++i) {
      ASSERT_EQ(places[i].outcome, expected[i].outcome);
      if (there.contains(experts[i])) {
        ASSERT_EQ(places[i].slot, there[experts[i]]);
      }
      if (places[i].outcome == Outcome::kLater) {
        later.push_back(experts[i]);
        continue;
      }
      ASSERT_EQ(places[i].slot, expected[i].slot);
      ASSERT_TRUE(distinct.insert(places[i].slot).second);
      take(map_.unit(layer, experts[i]), places[i]);
    }
    laters += later.size();
    if (!later.empty()) {
      ASSERT_EQ(naive_.available(shape_.class_of_layer[layer]), 0u);
      waiting_.push_back({layer, later});
    }
  }

  void ask_ahead() {
    const uint32_t layer = below(static_cast<uint32_t>(shape_.class_of_layer.size()));
    const uint32_t expert = below(shape_.n_experts), spare = below(4), slot_class = shape_.class_of_layer[layer];
    const auto there = naive_.find(map_.unit(layer, expert));
    const bool expected = there || naive_.available(slot_class) > spare;
    const auto place = map_.acquire_ahead(layer, expert, spare);
    ASSERT_EQ(place.has_value(), expected);
    if (!place) return;
    const auto same = there ? naive_.hold(*there) : naive_.give(map_.unit(layer, expert), slot_class);
    ASSERT_EQ(place->outcome, same.outcome);
    ASSERT_EQ(place->slot, same.slot);
    take(map_.unit(layer, expert), *place);
  }

  void place() {
    const uint32_t layer = below(static_cast<uint32_t>(shape_.class_of_layer.size())), expert = below(shape_.n_experts);
    const uint32_t unit = map_.unit(layer, expert), slot_class = shape_.class_of_layer[layer];
    const auto slot = naive_.victim(slot_class);
    const bool expected = !naive_.find(unit) && slot && naive_.slots[*slot].state == Naive::Slot::kEmpty;
    ASSERT_EQ(map_.place(layer, expert), expected ? slot : std::nullopt);
    if (!expected) return;
    naive_.slots[*slot] = {Naive::Slot::kLoading, unit, 0, slot_class};
    bytes_[*slot] = kGarbage;
    reading_.insert({*slot, unit});
  }

  void end_a_read(bool fails) {
    if (reading_.empty()) return;
    auto at = reading_.begin();
    std::advance(at, below(static_cast<uint32_t>(reading_.size())));
    const auto [slot, unit] = *at;
    reading_.erase(at);
    if (!fails) {
      bytes_[slot] = unit;
      map_.loaded(slot);
      naive_.slots[slot].state = Naive::Slot::kReady;
      return;
    }
    ++failures;
    map_.failed(slot);
    naive_.slots[slot].state = Naive::Slot::kEmpty;
    for (Held& held : held_) held.lost = held.lost || held.slot == slot;
    ASSERT_EQ(map_.find(unit / shape_.n_experts, unit % shape_.n_experts), std::nullopt);
  }

  void let_go() {
    if (held_.empty()) return;
    std::swap(held_[below(static_cast<uint32_t>(held_.size()))], held_.back());
    const Held held = held_.back();
    held_.pop_back();
    if (!held.lost && !reading_.contains(held.slot)) {
      ASSERT_EQ(bytes_[held.slot], held.unit) << "overwritten while held";
    }
    map_.release(held.slot);
    --naive_.slots[held.slot].holders;
  }

  void retire() {
    const uint32_t slot_class = below(static_cast<uint32_t>(shape_.slots_of_class.size()));
    const auto expected = naive_.retire(slot_class);
    ASSERT_EQ(map_.retire(slot_class), expected);
    if (!expected) return;
    bytes_[*expected] = kGarbage;
    ++retired_[slot_class];
  }

  // The whole of both.
  void check() {
    std::map<uint32_t, uint32_t> slot_of;
    for (uint32_t unit = 0; unit < n_units_; ++unit) {
      const auto slot = map_.find(unit / shape_.n_experts, unit % shape_.n_experts);
      ASSERT_EQ(slot, naive_.find(unit));
      if (slot) {
        ASSERT_TRUE(slot_of.insert({*slot, unit}).second) << "two experts in one slot";
      }
    }
    for (uint32_t s = 0; s < map_.n_slots(); ++s) {
      const auto unit = map_.resident(s);
      ASSERT_EQ(map_.held(s), naive_.slots[s].holders > 0);
      ASSERT_EQ(unit.has_value(), naive_.slots[s].state == Naive::Slot::kReady);
      if (unit) {
        ASSERT_EQ(*unit, bytes_[s]);
      }
    }
    for (uint32_t c = 0; c < shape_.slots_of_class.size(); ++c) ASSERT_EQ(map_.available(c), naive_.available(c));
  }

  Shape shape_;
  uint32_t n_units_;
  SlotMap map_;
  Naive naive_;
  std::mt19937_64 random_;
  std::vector<uint32_t> bytes_;           // [slots]: the unit whose bytes are there
  std::map<uint32_t, uint32_t> reading_;  // slot -> unit
  std::vector<Held> held_;
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>> waiting_;
  std::map<uint32_t, uint32_t> retired_;
  bool may_retire_ = false;
};

std::vector<std::string> names_of_policies() {
  std::vector<std::string> names;
  for (const PolicyInfo& policy : policies()) names.push_back(policy.name);
  return names;
}

class SlotMapSizes : public testing::TestWithParam<std::string> {};

TEST_P(SlotMapSizes, BehavesAsTheNaiveModelOverRandomSteps) {
  const uint32_t n = 8, k = 3;
  std::vector<Shape> shapes;
  for (const uint32_t slots : {1u, 2u, k, k + 1, k + 2, n - 1, n, 2 * n, 3 * n - 1, 3 * n})
    shapes.push_back({n, k, {0, 0, 0}, {slots}});
  shapes.push_back({n, k, {0, 1, 0, 2}, {k, 2, n}});
  shapes.push_back({n, k, {1, 0, 1}, {1, 2 * n}});
  uint64_t evictions = 0, laters = 0, failures = 0;
  for (const Shape& shape : shapes) {
    for (const bool retires : {false, true}) {
      Users users(shape, GetParam(), 17 + shape.slots_of_class[0]);
      if (retires) users.allow_retire();
      for (int i = 0; i < 12000 && !HasFatalFailure(); ++i) users.step();
      users.end();
      evictions += users.evictions;
      laters += users.laters;
      failures += users.failures;
    }
  }
  // The steps reached what they are for.
  EXPECT_GT(evictions, 20000u);
  EXPECT_GT(laters, 10000u);
  EXPECT_GT(failures, 1000u);
}

INSTANTIATE_TEST_SUITE_P(Policies, SlotMapSizes, testing::ValuesIn(names_of_policies()),
                         [](const auto& tested) { return tested.param; });

TEST(SlotMap, EveryExpertStaysWhereThereAreSlotsForAll) {
  SlotMap map = one_class(3, 8, 24);
  std::mt19937_64 random(5);
  std::map<uint32_t, uint32_t> slot_of;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t layer = static_cast<uint32_t>(random() % 3), e = static_cast<uint32_t>(random() % 8);
    const uint32_t loads = visit(map, layer, {e, (e + 3) % 8});
    for (const uint32_t expert : {e, (e + 3) % 8}) {
      const uint32_t slot = *map.find(layer, expert);
      EXPECT_EQ(slot_of.try_emplace(map.unit(layer, expert), slot).first->second, slot);
    }
    if (i > 1000) {
      EXPECT_EQ(loads, 0u);
    }
  }
}

}  // namespace
}  // namespace sluice::experts
