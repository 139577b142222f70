#include "experts/source.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/read_queue.h"

namespace sluice::experts {

namespace {

// Whether the part lies behind the extent, for every expert, and near enough to be read with it.
bool continues(const LayerSource::Extent& extent, const Part& part) {
  const uint64_t end = extent.offset + extent.bytes;
  return extent.file == part.file && extent.stride == part.stride && part.offset >= end &&
         part.offset - end < kReadThrough && part.offset + part.bytes - extent.offset <= part.stride;
}

}  // namespace

LayerSource::LayerSource(uint32_t n_experts, std::vector<Part> parts, std::span<const uint64_t> checksums)
    : n_experts_(n_experts), parts_(std::move(parts)), checksums_(checksums) {
  for (const Part& part : parts_) {
    if (!extents_.empty() && continues(extents_.back(), part)) {
      Extent& last = extents_.back();
      within_.push_back({extents_.size() - 1, part.offset - last.offset});
      last.bytes = part.offset + part.bytes - last.offset;
    } else {
      within_.push_back({extents_.size(), 0});
      extents_.push_back({part.file, part.offset, part.bytes, part.stride, 0});
    }
  }
  for (Extent& extent : extents_) {
    extent.slot_offset = slot_bytes_;
    slot_bytes_ += window_bytes(extent.bytes);
    expert_bytes_ += extent.bytes;
  }
  if (!checksums_.empty() && (checksums_.size() != n_experts_ || extents_.size() != 1))
    fail(ErrorKind::kInternal, "{} checksums for {} experts of {} extents", checksums_.size(), n_experts_,
         extents_.size());
}

size_t LayerSource::part_offset(size_t part, uint32_t expert) const {
  const Extent& extent = extents_[within_[part].extent];
  return extent.slot_offset + extent.offset_of(expert) % kDirectBlock + within_[part].offset;
}

// ---- slots ---------------------------------------------------------------------------------------------------------

SlotPlan::SlotPlan(std::span<const LayerSource> layers, const BankSize& size) {
  for (const LayerSource& layer : layers) {
    const auto found = std::ranges::find(slot_bytes_, layer.slot_bytes());
    class_of_layer_.push_back(static_cast<uint32_t>(found - slot_bytes_.begin()));
    if (found == slot_bytes_.end()) slot_bytes_.push_back(layer.slot_bytes());
  }
  slots_of_class_.resize(slot_bytes_.size());
  switch (size.kind) {
    case BankSize::Kind::kAll:
      set(layers, std::numeric_limits<double>::infinity());
      break;
    case BankSize::Kind::kPerLayer:
      set(layers, static_cast<double>(size.amount));
      break;
    case BankSize::Kind::kBytes:
      set_within(layers, size.amount);
      break;
  }
}

void SlotPlan::set(std::span<const LayerSource> layers, double experts_per_layer) {
  complete_ = true;
  for (uint32_t c = 0; c < slots_of_class_.size(); ++c) {
    double wanted = 0;
    uint32_t most = 0;
    for (size_t l = 0; l < layers.size(); ++l) {
      if (class_of_layer_[l] != c) continue;
      wanted += std::min<double>(experts_per_layer, layers[l].n_experts());
      most += layers[l].n_experts();
    }
    slots_of_class_[c] = std::clamp(static_cast<uint32_t>(wanted), 1u, most);
    complete_ = complete_ && slots_of_class_[c] == most;
  }
}

void SlotPlan::set_within(std::span<const LayerSource> layers, uint64_t limit) {
  uint64_t one_of_each = 0, one_for_every_layer = 0;
  for (const size_t slot : slot_bytes_) one_of_each += slot + kDirectBlock;
  for (const LayerSource& layer : layers) one_for_every_layer += layer.slot_bytes();
  if (limit < one_of_each)
    fail(ErrorKind::kLimit, "{} bytes for experts can't hold one of each size; give at least {} (--expert-memory)",
         limit, one_of_each);
  const uint64_t for_slots = limit - kDirectBlock * slot_bytes_.size();
  set(layers, static_cast<double>(for_slots) / static_cast<double>(one_for_every_layer));
  while (bytes() > limit) {  // classes that were rounded up to one slot are paid for by the largest
    --*std::ranges::max_element(slots_of_class_);
    complete_ = false;
  }
}

uint64_t SlotPlan::bytes_of_class(uint32_t c) const {
  return uint64_t{slots_of_class_[c]} * slot_bytes_[c] + kDirectBlock;
}

uint64_t SlotPlan::bytes() const {
  uint64_t total = 0;
  for (uint32_t c = 0; c < slots_of_class_.size(); ++c) total += bytes_of_class(c);
  return total;
}

uint32_t SlotPlan::n_slots() const {
  uint32_t total = 0;
  for (const uint32_t n : slots_of_class_) total += n;
  return total;
}

}  // namespace sluice::experts
