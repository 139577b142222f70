#include "state/pages.h"

#include "base/error.h"

namespace sluice::state {

PagePool::PagePool(size_t page_bytes, size_t n_pages)
    : page_bytes_(page_bytes), memory_(page_bytes * n_pages, "KV cache"), holders_(n_pages, 0), free_(n_pages) {
  for (size_t i = 0; i < n_pages; ++i) free_[i] = static_cast<PageId>(n_pages - 1 - i);
}

PageId PagePool::acquire() {
  if (free_.empty())
    fail(ErrorKind::kLimit, "the KV cache is full: all {} pages are in use; start with a larger --ctx-size", size());
  const PageId page = free_.back();
  free_.pop_back();
  holders_[page] = 1;
  return page;
}

void PagePool::release(PageId page) {
  if (--holders_[page] == 0) free_.push_back(page);
}

}  // namespace sluice::state
