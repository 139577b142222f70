// What a trace would have cost: it is replayed through the slot map that runs models, with any number of slots and any
// policy, and through a clairvoyant one that no policy can beat. No weights, no reads, no time.
#pragma once

#include <cstdint>
#include <string_view>

#include "experts/trace.h"

namespace sluice::experts {

// An expert counts once for each layer of a step, however many of the step's tokens use it.
struct Replay {
  uint64_t hits = 0, misses = 0;
  uint64_t bytes = 0;  // of what was loaded; 0 where the trace does not know

  double hit_rate() const {
    return hits + misses == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(hits + misses);
  }
};

// The name by which replay() knows the clairvoyant bound. It gives away the slot whose expert is needed again last: MIN
// of Belády, "A study of replacement algorithms for a virtual-storage computer" (1966), here with several experts
// needed at once, of which none may go.
constexpr std::string_view kClairvoyant = "optimal";

// Replays a trace from an empty bank of `slots` slots that all layers share, `step_tokens` tokens a step, as a prompt
// is read; 1: as text is generated. Throws Error(kUsage) for an unknown policy, or when a step needs more experts of a
// layer at once than there are slots, with their number.
Replay replay(const Trace& trace, std::string_view policy, uint32_t slots, uint32_t step_tokens = 1);

}  // namespace sluice::experts
