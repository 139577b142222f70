// Where the experts of a layer lie on disk, and so how they lie in a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"

namespace sluice::experts {

// One stacked tensor of a layer (gates, ups or downs): expert e's bytes lie at offset + e * stride of `file`.
struct Part {
  const File* file = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;   // of one expert
  uint64_t stride = 0;  // from one expert to the next; `bytes` where a tensor is stored whole
};

// Gaps between parts of an expert below this are read with them: another read would take longer.
constexpr uint64_t kReadThrough = 4096;

// A layer's experts. An expert is read in extents, each a contiguous range of a file: a part, or neighbouring parts of
// a file that stores expert after expert. In a slot each extent has the memory of an aligned window
// (base/read_queue.h), in which it begins where it does in its block of the file: so it is read directly, without a
// copy.
class LayerSource {
 public:
  // `checksums`: xxh64 of each expert's one extent, empty where there are none; they must outlive the source.
  LayerSource(uint32_t n_experts, std::vector<Part> parts, std::span<const uint64_t> checksums = {});

  struct Extent {
    const File* file;
    uint64_t offset, bytes, stride;
    size_t slot_offset;  // of its window
    uint64_t offset_of(uint32_t expert) const { return offset + expert * stride; }
  };

  uint32_t n_experts() const { return n_experts_; }
  std::span<const Part> parts() const { return parts_; }
  std::span<const Extent> extents() const { return extents_; }
  size_t slot_bytes() const { return slot_bytes_; }
  uint64_t expert_bytes() const { return expert_bytes_; }  // that are read for one
  std::span<const uint64_t> checksums() const { return checksums_; }
  // Where a part of an expert lies in its slot.
  size_t part_offset(size_t part, uint32_t expert) const;

 private:
  struct Within {
    size_t extent;
    uint64_t offset;
  };
  uint32_t n_experts_;
  std::vector<Part> parts_;
  std::span<const uint64_t> checksums_;
  std::vector<Extent> extents_;
  std::vector<Within> within_;  // by part
  size_t slot_bytes_ = 0;
  uint64_t expert_bytes_ = 0;
};

// How many slots are wanted.
struct BankSize {
  enum class Kind { kAll, kPerLayer, kBytes };
  Kind kind = Kind::kAll;
  uint64_t amount = 0;  // slots for each layer, or bytes of all slots

  static BankSize all() { return {}; }
  static BankSize per_layer(uint32_t n) { return {Kind::kPerLayer, n}; }
  static BankSize bytes(uint64_t n) { return {Kind::kBytes, n}; }
};

// How many slots there are to be. Slots of one size are shared by the layers that need that size, as use demands.
class SlotPlan {
 public:
  SlotPlan() = default;  // of a model without experts
  // kPerLayer: more than a layer has experts counts as all. kBytes: as many as fit, in the same proportion for every
  // size; throws Error(kLimit) when one of each does not.
  SlotPlan(std::span<const LayerSource> layers, const BankSize& size);

  uint32_t n_slots() const;
  uint64_t bytes() const;                      // of all slots' memory
  uint64_t bytes_of_class(uint32_t c) const;   // with what aligning the first slot takes
  bool complete() const { return complete_; }  // every expert has a slot
  std::span<const uint32_t> class_of_layer() const { return class_of_layer_; }
  std::span<const uint32_t> slots_of_class() const { return slots_of_class_; }
  std::span<const size_t> slot_bytes() const { return slot_bytes_; }  // by class

 private:
  void set(std::span<const LayerSource> layers, double experts_per_layer);
  void set_within(std::span<const LayerSource> layers, uint64_t bytes);

  std::vector<uint32_t> class_of_layer_, slots_of_class_;
  std::vector<size_t> slot_bytes_;
  bool complete_ = true;
};

}  // namespace sluice::experts
