#include "experts/bank.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::experts {

namespace {

constexpr size_t kPiecesPerRead = 256;  // experts a read: tens of MB for real models, and under the system's 1024

}  // namespace

size_t LayerSource::part_offset(size_t part) const {
  size_t offset = 0;
  for (size_t i = 0; i < part; ++i) offset = align_up(offset + parts[i].bytes);
  return offset;
}

size_t LayerSource::slot_bytes() const { return part_offset(parts.size()); }

Bank::Bank(std::vector<LayerSource> layers) : layers_(std::move(layers)) {
  for (const LayerSource& layer : layers_) {
    maps_.emplace_back(layer.n_experts, layer.n_experts);
    memory_.emplace_back(layer.slot_bytes() * layer.n_experts, "expert slots");
  }
}

uint64_t Bank::bytes(std::span<const LayerSource> layers) {
  uint64_t total = 0;
  for (const LayerSource& layer : layers) total += uint64_t{layer.slot_bytes()} * layer.n_experts;
  return total;
}

std::byte* Bank::slot(uint32_t layer, uint32_t index) {
  return memory_[layer].data() + size_t{index} * layers_[layer].slot_bytes();
}

uint64_t Bank::source_bytes() const {
  uint64_t total = 0;
  for (const LayerSource& layer : layers_)
    for (const Part& part : layer.parts) total += part.bytes * layer.n_experts;
  return total;
}

void Bank::lock() {
  for (Buffer& memory : memory_) memory.lock("expert slots");
}

void Bank::fill(const Progress& progress) {
  for (uint32_t l = 0; l < layers_.size(); ++l) {
    const LayerSource& layer = layers_[l];
    for (size_t p = 0; p < layer.parts.size(); ++p) {
      const Part& part = layer.parts[p];
      for (uint32_t first = 0; first < layer.n_experts; first += kPiecesPerRead) {
        const uint32_t end = std::min<uint32_t>(layer.n_experts, first + kPiecesPerRead);
        std::vector<iovec> pieces;
        for (uint32_t e = first; e < end; ++e) pieces.push_back({slot(l, e) + layer.part_offset(p), part.bytes});
        part.file->read_scattered(part.offset + first * part.bytes, pieces);
        progress(uint64_t{end - first} * part.bytes);
      }
    }
    for (uint32_t e = 0; e < layer.n_experts; ++e) maps_[l].place(e, e);
  }
}

void Bank::acquire(uint32_t layer, std::span<const uint32_t> ids, std::vector<const std::byte*>& slots) const {
  slots.clear();
  for (const uint32_t id : ids) {
    const auto slot = maps_[layer].find(id);
    if (!slot) fail(ErrorKind::kInternal, "layer {}: expert {} is not resident", layer, id);
    slots.push_back(memory_[layer].data() + size_t{*slot} * layers_[layer].slot_bytes());
  }
}

}  // namespace sluice::experts
