// The slot bank: memory for experts, the map that says which lies where, and the reading that fills it. Today every
// layer has as many slots as experts and is filled at load; callers ask for experts by id and never see how many slots
// there are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/memory.h"
#include "experts/slot_map.h"

namespace sluice::experts {

// One stacked tensor of a layer (gates, ups or downs): expert e's bytes lie at offset + e * bytes of `file`.
struct Part {
  const File* file = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // of one expert
};

// A layer's experts on disk. A slot holds the parts one after another, each at a multiple of kAlignment.
struct LayerSource {
  uint32_t n_experts = 0;
  std::vector<Part> parts;

  size_t part_offset(size_t part) const;  // in a slot
  size_t slot_bytes() const;
};

class Bank {
 public:
  using Progress = std::function<void(uint64_t bytes)>;  // called after each read with the bytes it brought

  // Reserves the slots of all layers. Throws Error(kLimit).
  explicit Bank(std::vector<LayerSource> layers);
  static uint64_t bytes(std::span<const LayerSource> layers);

  // Bytes of all experts as they lie in the files: what fill() reads.
  uint64_t source_bytes() const;

  // Keeps the slots in memory (Buffer::lock). Throws Error(kLimit).
  void lock();

  // Reads every expert once, in large sequential reads straight into the slots. Throws Error(kIo).
  void fill(const Progress& progress);

  // Where the bytes of a layer's expert lie, for each of `ids`: pointers to slots, valid until the next acquire.
  void acquire(uint32_t layer, std::span<const uint32_t> ids, std::vector<const std::byte*>& slots) const;

  const LayerSource& source(uint32_t layer) const { return layers_[layer]; }

 private:
  std::byte* slot(uint32_t layer, uint32_t index);

  std::vector<LayerSource> layers_;
  std::vector<SlotMap> maps_;
  std::vector<Buffer> memory_;  // per layer: slots one after another
};

}  // namespace sluice::experts
