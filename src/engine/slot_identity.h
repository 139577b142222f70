// What makes the state of one model of no use to another: slot files carry it, and are refused where it differs.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels.h"

namespace sluice {

class Engine;

struct SlotIdentity {
  uint64_t model = 0;  // model_mark()
  ops::cpu::CacheType cache_type = ops::cpu::CacheType::kF16;
  uint64_t page_bytes = 0;       // of keys and values of kTile positions
  uint64_t recurrent_bytes = 0;  // of a sequence's recurrent state
};

// Reads a few KiB of every tensor. Throws Error(kIo) when the model's file fails.
SlotIdentity slot_identity(const Engine& engine);

// XXH64 of what the state after given tokens follows from: the numbers that the model computes with (experts used and
// overridden metadata among them), and of every tensor name, format, extents and first 4096 bytes; of experts that lie
// in a sidecar, as if they lay in the model's file. It tells models apart that were made of one another by training a
// few tensors, but not by changing a few weights.
uint64_t model_mark(const Engine& engine);

}  // namespace sluice
