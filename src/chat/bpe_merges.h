// The merging of symbol pairs that byte-level BPE and SentencePiece BPE share: always the pair of lowest rank, the
// leftmost among equals, until none is left. n log n in the number of symbols, however long the word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace sluice::chat {

struct Merge {
  uint32_t rank;   // lower merges first
  int32_t symbol;  // what the pair becomes
};

// A hash table (left symbol, right symbol) -> Merge. Symbols are token ids; negative ones are the user's own, except
// MergeTable::kGone.
class MergeTable {
 public:
  static constexpr int32_t kGone = std::numeric_limits<int32_t>::min();

  // Room for `count` merges: add() must not be called more often.
  explicit MergeTable(size_t count);
  // False, and nothing changed, if the pair is there already.
  bool add(int32_t left, int32_t right, Merge merge);
  // nullptr if the pair doesn't merge.
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    int32_t left, right;
    Merge merge;
  };
  size_t slot_of(int32_t left, int32_t right) const;

  std::vector<Slot> slots_;  // open addressing, a power of two of them, at most half full; left == kGone: free
};

// Merges words; an object so that a text's many words share its buffers. Not for use by two threads at once.
class PairMerger {
 public:
  explicit PairMerger(const MergeTable& merges) : merges_(merges) {}
  // Merges in place until no pair can be. At most 2^32 - 1 symbols.
  void merge(std::vector<int32_t>& symbols);

 private:
  void push_pair(const std::vector<int32_t>& symbols, uint32_t left);

  const MergeTable& merges_;
  std::vector<uint32_t> previous_, next_;  // the symbols that are left, as a doubly linked list
  std::vector<uint64_t> heap_;             // rank << 32 | position of the left symbol; entries may be out of date
};

}  // namespace sluice::chat
