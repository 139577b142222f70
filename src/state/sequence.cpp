#include "state/sequence.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/cpu/kernels.h"

namespace sluice::state {

namespace {

constexpr size_t kTile = ops::cpu::kTile;

size_t pages_for(size_t positions) { return (positions + kTile - 1) / kTile; }

Buffer copy_of(const Buffer& from) {
  Buffer copy(from.size(), "snapshot of recurrent state");
  if (from.size() > 0) std::memcpy(copy.data(), from.data(), from.size());
  return copy;
}

}  // namespace

Snapshot::Snapshot(PagePool& pool, std::span<const PageId> pages, size_t length, Buffer recurrent)
    : pool_(&pool), pages_(pages.begin(), pages.end()), length_(length), recurrent_(std::move(recurrent)) {
  for (const PageId page : pages_) pool.retain(page);
}

Snapshot::~Snapshot() {
  for (const PageId page : pages_) pool_->release(page);
}

void Snapshot::swap(Snapshot& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(pages_, other.pages_);
  std::swap(length_, other.length_);
  std::swap(recurrent_, other.recurrent_);
}

size_t Snapshot::pages_of_its_own() const {
  return static_cast<size_t>(std::ranges::count_if(pages_, [&](PageId page) { return !pool_->shared(page); }));
}

Sequence::Sequence(PagePool& pool, size_t recurrent_floats)
    : pool_(pool), recurrent_(recurrent_floats * sizeof(float), "recurrent state") {}

Sequence::~Sequence() { drop_pages(); }

void Sequence::begin_step(size_t n) {
  // The page that holds the last position may be shared with a snapshot: what is written behind its end goes to a copy.
  const bool copy_last = length_ % kTile != 0 && pool_.shared(pages_[length_ / kTile]);
  const size_t added = pages_for(length_ + n) - pages_.size();
  if (pool_.free_pages() < added + copy_last)
    fail(
        ErrorKind::kLimit,
        "the KV cache is full: {} more positions need {} pages of {} positions, {} of {} are free; start with a larger "
        "--ctx-size",
        n, added + copy_last, kTile, pool_.free_pages(), pool_.size());
  pages_.reserve(pages_.size() + added);
  page_data_.reserve(pages_.size() + added);
  if (copy_last) {
    const PageId copy = pool_.acquire();
    const PageId old = pages_[length_ / kTile];
    std::memcpy(pool_.data(copy), pool_.data(old), pool_.page_bytes());
    set_page(length_ / kTile, copy);
    pool_.release(old);
  }
  for (size_t i = 0; i < added; ++i) set_page(pages_.size(), pool_.acquire());
  step_ = n;
}

void Sequence::commit_step() {
  length_ += step_;
  step_ = 0;
}

void Sequence::cancel_step() noexcept {
  drop_pages(pages_for(length_));
  step_ = 0;
}

void Sequence::abort_step() noexcept { clear(); }

std::byte* Sequence::page_of(size_t position) { return pool_.data(pages_[position / kTile]); }

Snapshot Sequence::snapshot() const { return snapshot(length_, copy_of(recurrent_)); }

Snapshot Sequence::snapshot(size_t length, Buffer recurrent) const {
  return Snapshot(pool_, std::span(pages_).first(pages_for(length)), length, std::move(recurrent));
}

void Sequence::restore(const Snapshot& snapshot, size_t length) {
  if (length > snapshot.length_ || (length < snapshot.length_ && recurrent_.size() > 0))
    fail(ErrorKind::kInternal, "a state of {} positions can't serve {}", snapshot.length_, length);
  const auto pages = std::span(snapshot.pages_).first(pages_for(length));
  for (const PageId page : pages) pool_.retain(page);
  drop_pages();
  for (const PageId page : pages) set_page(pages_.size(), page);
  length_ = length;
  step_ = 0;
  if (recurrent_.size() > 0) std::memcpy(recurrent_.data(), snapshot.recurrent_.data(), recurrent_.size());
}

void Sequence::clear() noexcept {
  drop_pages();
  length_ = step_ = 0;
  if (recurrent_.size() > 0) std::memset(recurrent_.data(), 0, recurrent_.size());
}

void Sequence::set_page(size_t index, PageId page) {
  if (index == pages_.size()) {
    pages_.push_back(page);
    page_data_.push_back(pool_.data(page));
  } else {
    pages_[index] = page;
    page_data_[index] = pool_.data(page);
  }
}

void Sequence::drop_pages(size_t keep) noexcept {
  for (size_t i = keep; i < pages_.size(); ++i) pool_.release(pages_[i]);
  pages_.resize(keep);
  page_data_.resize(keep);
}

}  // namespace sluice::state
