// States of earlier prompts and answers, kept for later requests that begin alike: one store for all slots, with a
// budget in bytes. What it holds is a value (state::Snapshot); whom it came from does not matter.
//
// A hybrid's recurrent state can't be cut: a state serves only requests that begin with all of its tokens. A state
// without a recurrent part serves any beginning that it shares with a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "state/sequence.h"

namespace sluice {

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

// A few tokens from this place on: what is told of an earlier request where a new one differs from it.
std::vector<int32_t> a_few_from(const std::vector<int32_t>& tokens, size_t place);

class PromptCache {
 public:
  // `budget`: bytes that states may take beyond `free_pages` pages that are there anyway (the live sequences' own,
  // which states may use while those don't). `pool` must outlive the cache.
  PromptCache(state::PagePool& pool, uint64_t budget, size_t free_pages, bool recurrent);

  bool enabled() const { return budget_ > 0; }

  struct Match {
    size_t usable = 0;                          // tokens that a kept state saves
    size_t common = 0;                          // tokens in common with anything that is or was kept
    bool evicted = false;                       // a state that was evicted would have served more
    std::vector<int32_t> instead;               // what stood behind the common tokens before, a few
    const state::Snapshot* snapshot = nullptr;  // null: nothing serves; valid until the cache changes
  };
  // The most useful state for a request, of which at least one token must be left to compute. Does not count as use.
  Match find(std::span<const int32_t> tokens) const;
  // The same state is counted as used now.
  void touch(const state::Snapshot* snapshot);

  // Keeps a state. One with the same tokens is replaced; then the least valuable go until the budget holds, perhaps the
  // new one.
  void keep(std::vector<int32_t> tokens, state::Snapshot snapshot);
  // Lets the least valuable go until `pages` pages are free; false when nothing is left to let go.
  bool make_room(size_t pages);
  // Lets the least valuable go until so many more bytes fit into the budget; false when they can't.
  bool make_bytes(uint64_t bytes);

  struct Kept {
    std::vector<int32_t> tokens;
    state::Snapshot snapshot;
    size_t parent = 0;  // tokens that the longest other state saves of these
    uint64_t used = 0;  // when it was of use last, counted in uses
  };
  const std::list<Kept>& kept() const { return kept_; }
  void clear();

  size_t size() const { return kept_.size(); }
  uint64_t evicted() const { return evicted_; }
  uint64_t budget() const { return budget_; }
  // Bytes of recurrent state, and of pages beyond the free ones.
  uint64_t bytes() const;

 private:
  using Iterator = std::list<Kept>::iterator;
  double value(const Kept& kept) const;
  size_t saved_by(const Kept& other, const Kept& kept) const;
  void drop_least();

  state::PagePool& pool_;
  uint64_t budget_;
  size_t free_pages_;
  bool recurrent_;
  std::list<Kept> kept_;
  std::list<std::vector<int32_t>> gone_;  // tokens of states that were evicted lately
  uint64_t own_bytes_ = 0, uses_ = 0, evicted_ = 0;
};

// Where in a prompt states are kept: after how many tokens, ascending, all above `cached` and below `n`. One token is
// always left to compute, so the last is n - 1: the same prompt again costs one token.
struct SnapshotPlaces {
  size_t limit = 32;        // so many, at most: those nearest to the end
  size_t every = 2048;      // in long prompts, at multiples: what prompts of different length have in common
  size_t before_end = 512;  // one so far before the end: an end that is replaced
};
std::vector<size_t> snapshot_places(size_t n, size_t cached, std::span<const size_t> turn_starts,
                                    const SnapshotPlaces& places);

}  // namespace sluice
