// Pages of keys and values: each holds kTile positions of every attention layer, is counted, and may be shared by
// sequences and snapshots with a common prefix. What lies inside a page is the ops room's (AttentionShape).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory.h"

namespace sluice::state {

using PageId = uint32_t;

// A fixed number of pages in one allocation; memory that no page has used yet is not resident.
class PagePool {
 public:
  // Throws Error(kLimit) when the memory can't be had.
  PagePool(size_t page_bytes, size_t n_pages);

  // A page with one holder. Throws Error(kLimit) naming the number of pages when none is free.
  PageId acquire();
  void retain(PageId page) { ++holders_[page]; }
  void release(PageId page);

  bool shared(PageId page) const { return holders_[page] > 1; }
  std::byte* data(PageId page) { return memory_.data() + page * page_bytes_; }
  const std::byte* data(PageId page) const { return memory_.data() + page * page_bytes_; }
  size_t page_bytes() const { return page_bytes_; }
  size_t size() const { return holders_.size(); }
  size_t free_pages() const { return free_.size(); }

 private:
  size_t page_bytes_;
  Buffer memory_;
  std::vector<uint32_t> holders_;
  std::vector<PageId> free_;  // a stack; low numbers come first, so a short context touches little memory
};

}  // namespace sluice::state
