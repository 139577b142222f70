// The state of a sequence as a value: keys and values of its positions, and the recurrent state after the last of them.
// Rolling back rejected drafts, resuming from a known prefix and saving a slot are all snapshots of this one thing.
//
// A step reserves positions, computes, and commits. A step that ends any other way leaves the sequence empty: recurrent
// state that is half-way through a step can't be told from a whole one, so it is never kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "state/pages.h"

namespace sluice::state {

// A sequence as it stood after `length()` positions. Pages are shared with the sequence, not copied. Movable, counted.
class Snapshot {
 public:
  Snapshot() = default;
  Snapshot(PagePool& pool, std::span<const PageId> pages, size_t length, Buffer recurrent);
  ~Snapshot();
  Snapshot(Snapshot&& other) noexcept { swap(other); }
  Snapshot& operator=(Snapshot&& other) noexcept {
    swap(other);
    return *this;
  }

  size_t length() const { return length_; }
  // Bytes of its own: the recurrent state.
  size_t bytes() const { return recurrent_.size(); }
  // Pages that nobody else holds: they are free when it goes.
  size_t pages_of_its_own() const;

  // For those who save it: its pages by position / kTile, and the recurrent state.
  std::span<const PageId> pages() const { return pages_; }
  std::span<const std::byte> recurrent() const { return recurrent_.bytes(); }

 private:
  friend class Sequence;
  void swap(Snapshot& other) noexcept;

  PagePool* pool_ = nullptr;
  std::vector<PageId> pages_;
  size_t length_ = 0;
  Buffer recurrent_;
};

class Sequence {
 public:
  // An empty sequence; `recurrent_floats` of recurrent state (0 for plain transformers). Throws Error(kLimit).
  Sequence(PagePool& pool, size_t recurrent_floats);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Positions that are computed and kept.
  size_t length() const { return length_; }

  // Begins a step of n more positions: their pages are there and are this sequence's alone. Throws Error(kLimit) when
  // the pool has too few pages; the sequence is then as before.
  void begin_step(size_t n);
  // Ends it: the n positions are part of the sequence.
  void commit_step();
  // Takes back a step in which nothing was computed yet: the sequence is as before.
  void cancel_step() noexcept;
  // Ends it without a result, and empties the sequence.
  void abort_step() noexcept;

  // For the step's operations: pages by position / kTile, and the recurrent state.
  const std::byte* const* pages() const { return page_data_.data(); }
  std::byte* page_of(size_t position);
  std::span<float> recurrent() { return recurrent_.as<float>(); }

  // The sequence as it is now, or as it was after its first `length` positions with the recurrent state given (a step
  // captures it there). Throws Error(kLimit) when memory runs out.
  Snapshot snapshot() const;
  Snapshot snapshot(size_t length, Buffer recurrent) const;
  // Becomes what the snapshot holds, or its first `length` positions where it has no recurrent state.
  void restore(const Snapshot& snapshot) { restore(snapshot, snapshot.length()); }
  void restore(const Snapshot& snapshot, size_t length);
  void clear() noexcept;

 private:
  void set_page(size_t index, PageId page);
  void drop_pages(size_t keep = 0) noexcept;

  PagePool& pool_;
  std::vector<PageId> pages_;
  std::vector<const std::byte*> page_data_;
  size_t length_ = 0, step_ = 0;
  Buffer recurrent_;
};

}  // namespace sluice::state
