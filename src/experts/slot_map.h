// Which expert lies in which slot: a pure state machine, without I/O or threads. Experts are always reached through it;
// when every expert is resident it is simply full. There is no size at which it behaves in another way.
//
// A slot is empty, being read into, or holds its expert; and it may be held (pinned) by those who wait for it or
// compute with it. Only a slot that holds an expert and that nobody holds can be given to another expert.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "experts/policy.h"

namespace sluice::experts {

class SlotMap {
 public:
  // Slots are of classes, by size: layer l's experts go to slots of class `class_of_layer[l]`, of which there are
  // `slots_of_class[c]` (at least one). Slots are numbered through, class after class.
  SlotMap(uint32_t n_experts, std::vector<uint32_t> class_of_layer, std::vector<uint32_t> slots_of_class,
          std::unique_ptr<Policy> policy);

  uint32_t n_experts() const { return n_experts_; }
  uint32_t n_layers() const { return static_cast<uint32_t>(class_of_layer_.size()); }
  uint32_t n_slots() const { return static_cast<uint32_t>(slots_.size()); }
  // An expert of a layer as one number.
  uint32_t unit(uint32_t layer, uint32_t expert) const { return layer * n_experts_ + expert; }

  enum class Outcome : uint8_t {
    kReady,     // its bytes are in `slot`
    kArriving,  // they are being read into `slot`
    kLoad,      // the caller must read them into `slot`, and say loaded() or failed()
    kLater,     // every slot is held: ask again after a release() or loaded()
  };
  struct Place {
    Outcome outcome;
    uint32_t slot;
  };

  // Time goes on by so many tokens: the rows of the step that begins.
  void advance(uint32_t tokens);

  // Asks for experts of a layer, distinct, each used by uses[i] rows. First all that have a slot are held; only then
  // are slots given to those that have none, in the order of the list, as long as there are any. Every place but kLater
  // is held until release(). `uses` empty: they have been counted by an earlier call.
  std::vector<Place> acquire(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses);

  // As acquire for one expert that may be needed soon, which counts as no use. It does not take a slot while that would
  // leave fewer than `spare` slots of the class for others.
  std::optional<Place> acquire_ahead(uint32_t layer, uint32_t expert, uint32_t spare);

  // Gives an expert that has no slot an empty one, to be read into, held by nobody; nullopt when there is none.
  std::optional<uint32_t> place(uint32_t layer, uint32_t expert);

  // The read into a slot ended. A failed slot is empty; those who hold it must release it all the same.
  void loaded(uint32_t slot);
  void failed(uint32_t slot);
  void release(uint32_t slot);

  // Takes an unheld slot of class `slot_class` out of use for good, the least worthy; nullopt when all are held or only
  // one is left. What lay there is resident no more.
  std::optional<uint32_t> retire(uint32_t slot_class);

  // Who is worth least goes first; only the order counts.
  double worth(uint32_t unit) const { return worth_[unit]; }
  // Somebody waits for the slot or computes with it.
  bool held(uint32_t slot) const { return slots_[slot].holders > 0; }
  // The slot that holds an expert, or into which it is being read.
  std::optional<uint32_t> find(uint32_t layer, uint32_t expert) const;
  // The unit in a slot whose bytes are there.
  std::optional<uint32_t> resident(uint32_t slot) const;
  // Slots of a class that can be had now.
  uint32_t available(uint32_t slot_class) const { return static_cast<uint32_t>(obtainable_[slot_class].heap.size()); }
  uint32_t class_of_layer(uint32_t layer) const { return class_of_layer_[layer]; }
  uint32_t first_slot(uint32_t slot_class) const { return first_slot_[slot_class]; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  enum class State : uint8_t { kEmpty, kLoading, kReady, kRetired };
  struct Slot {
    State state = State::kEmpty;
    uint32_t unit = kNone;
    uint32_t holders = 0;
    uint32_t slot_class = 0;
    uint32_t heap_at = kNone;  // where it stands in its class's heap
  };

  // The slots of a class that can be had, as a heap: the first is the next to be given away. An empty one comes before
  // all others, then who is worth least, then the lower number.
  struct Obtainable {
    std::vector<uint32_t> heap;
    uint32_t in_use = 0;  // slots of the class that are not retired
  };

  // What a policy would have done by itself: the same map with the same slots, whose reads take no time.
  struct Contestant {
    std::unique_ptr<SlotMap> map;
    double misses = 0;          // a miss counts half after kMissHalfLife tokens
    std::vector<Place> places;  // [n_experts], kept so that acquire() cannot run out of memory halfway
  };

  void acquire(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses,
               std::span<Place> places);
  // Counts uses and sets the worth of who was used.
  void count(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses);
  void play(Contestant& contestant, uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses);
  void follow(const Contestant& contestant);
  bool has_slots_for_all() const;

  std::optional<uint32_t> give_slot(uint32_t unit, uint32_t slot_class);
  void vacate(uint32_t slot);
  void read_into(uint32_t slot, uint32_t unit);
  void hold(uint32_t slot);
  bool goes_before(uint32_t a, uint32_t b) const;
  // Put a slot into its class's heap, or take it out.
  void offer(uint32_t slot);
  void withdraw(uint32_t slot);
  void place_at(Obtainable& obtainable, size_t at, uint32_t slot);
  void sift_up(Obtainable& obtainable, size_t at);
  void sift_down(Obtainable& obtainable, size_t at);

  uint32_t n_experts_;
  std::vector<uint32_t> class_of_layer_, first_slot_;  // first_slot_: [classes + 1]
  std::vector<Slot> slots_;
  std::vector<Obtainable> obtainable_;  // [classes]
  std::vector<uint32_t> slot_of_;       // [units]
  std::vector<double> worth_;           // [units]
  std::unique_ptr<Policy> policy_;
  std::vector<Contestant> contestants_;
  size_t leader_ = 0;  // of the contestants
  // While every expert has a slot, contestants would only cost time: what was used last is worth most. They begin to
  // play, and the map to follow one, when slots have been retired.
  bool complete_ = false, following_ = false;
  double now_ = 0;
};

}  // namespace sluice::experts
