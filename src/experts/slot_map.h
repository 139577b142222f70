// Which expert of a layer lies in which slot: a pure state machine, without I/O or threads. Experts are always reached
// through it; when every expert is resident it is simply full.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::experts {

class SlotMap {
 public:
  // All slots empty. There is no size at which a map behaves in another way.
  SlotMap(uint32_t n_experts, uint32_t n_slots) : slot_of_(n_experts, kNone), expert_in_(n_slots, kNone) {}

  uint32_t n_experts() const { return static_cast<uint32_t>(slot_of_.size()); }
  uint32_t n_slots() const { return static_cast<uint32_t>(expert_in_.size()); }

  // The slot that holds `expert`; nullopt when it is not resident.
  std::optional<uint32_t> find(uint32_t expert) const {
    return slot_of_[expert] == kNone ? std::nullopt : std::optional(slot_of_[expert]);
  }

  // Puts `expert` into `slot`; what lay there is resident no more.
  void place(uint32_t expert, uint32_t slot) {
    if (expert_in_[slot] != kNone) slot_of_[expert_in_[slot]] = kNone;
    if (slot_of_[expert] != kNone) expert_in_[slot_of_[expert]] = kNone;
    slot_of_[expert] = slot;
    expert_in_[slot] = expert;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> slot_of_, expert_in_;
};

}  // namespace sluice::experts
