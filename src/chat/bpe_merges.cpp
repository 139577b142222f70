#include "chat/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace sluice::chat {

namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

}  // namespace

MergeTable::MergeTable(size_t count)
    : slots_(std::bit_ceil(2 * count + 2), Slot{kGone, kGone, Merge{0, 0}}) {}  // never full: a search always ends

size_t MergeTable::slot_of(int32_t left, int32_t right) const {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  const uint64_t hash = key * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio: spreads neighbouring ids (Knuth 6.4)
  size_t slot = (hash ^ hash >> 32) & (slots_.size() - 1);
  while (slots_[slot].left != kGone && (slots_[slot].left != left || slots_[slot].right != right)) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

bool MergeTable::add(int32_t left, int32_t right, Merge merge) {
  Slot& slot = slots_[slot_of(left, right)];
  if (slot.left != kGone) return false;
  slot = {left, right, merge};
  return true;
}

const Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(left, right)];
  return slot.left == kGone ? nullptr : &slot.merge;
}

void PairMerger::push_pair(const std::vector<int32_t>& symbols, uint32_t left) {
  const uint32_t right = next_[left];
  if (right == kNone) return;
  const Merge* merge = merges_.find(symbols[left], symbols[right]);
  if (merge) heap_.push_back(uint64_t{merge->rank} << 32 | left);
}

void PairMerger::merge(std::vector<int32_t>& symbols) {
  const auto count = static_cast<uint32_t>(symbols.size());
  if (count < 2) return;
  previous_.resize(count), next_.resize(count);
  for (uint32_t i = 0; i < count; ++i) previous_[i] = i - 1, next_[i] = i + 1;  // 0 - 1 is kNone
  next_[count - 1] = kNone;

  heap_.clear();
  for (uint32_t i = 0; i < count; ++i) push_pair(symbols, i);
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  const auto push = [&](uint32_t left) {
    const size_t before = heap_.size();
    push_pair(symbols, left);
    if (heap_.size() != before) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };

  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap_.back() >> 32), left = static_cast<uint32_t>(heap_.back());
    heap_.pop_back();
    if (symbols[left] == MergeTable::kGone || next_[left] == kNone) continue;
    const uint32_t right = next_[left];
    const Merge* merge = merges_.find(symbols[left], symbols[right]);
    if (!merge || merge->rank != rank) continue;  // one of the two has merged with another since
    symbols[left] = merge->symbol;
    symbols[right] = MergeTable::kGone;
    next_[left] = next_[right];
    if (next_[left] != kNone) previous_[next_[left]] = left;
    if (previous_[left] != kNone) push(previous_[left]);
    push(left);
  }
  std::erase(symbols, MergeTable::kGone);
}

}  // namespace sluice::chat
