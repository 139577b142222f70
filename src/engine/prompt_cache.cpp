#include "engine/prompt_cache.h"

#include <algorithm>

namespace sluice {

namespace {

constexpr size_t kRemembered = 64;  // evicted states whose tokens are still known, to say why something is missing
constexpr size_t kShown = 16;       // tokens behind a divergence that are told

}  // namespace

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::vector<int32_t> a_few_from(const std::vector<int32_t>& tokens, size_t place) {
  const auto begin = tokens.begin() + static_cast<ptrdiff_t>(place);
  return {begin, begin + static_cast<ptrdiff_t>(std::min(kShown, tokens.size() - place))};
}

PromptCache::PromptCache(state::PagePool& pool, uint64_t budget, size_t free_pages, bool recurrent)
    : pool_(pool), budget_(budget), free_pages_(free_pages), recurrent_(recurrent) {}

PromptCache::Match PromptCache::find(std::span<const int32_t> tokens) const {
  Match match;
  if (tokens.empty()) return match;
  const auto note_common = [&](const std::vector<int32_t>& held, size_t common) {
    if (common < match.common || (common == match.common && !match.instead.empty())) return;
    match.common = common;
    match.instead = a_few_from(held, common);
  };
  for (const Kept& kept : kept_) {
    const size_t common = common_prefix(kept.tokens, tokens);
    if (common == 0) continue;
    note_common(kept.tokens, common);
    if (recurrent_ && common < kept.tokens.size()) continue;
    const size_t usable = std::min(common, tokens.size() - 1);
    if (usable <= match.usable || (recurrent_ && usable < kept.tokens.size())) continue;
    match.usable = usable;
    match.snapshot = &kept.snapshot;
  }
  for (const std::vector<int32_t>& gone : gone_) {
    const size_t common = common_prefix(gone, tokens);
    if (common == 0) continue;
    note_common(gone, common);
    const bool serves = !recurrent_ || (common == gone.size() && common < tokens.size());
    match.evicted |= serves && common > match.usable;
  }
  return match;
}

void PromptCache::touch(const state::Snapshot* snapshot) {
  for (Kept& kept : kept_)
    if (&kept.snapshot == snapshot) kept.used = ++uses_;
}

uint64_t PromptCache::bytes() const {
  const size_t used = pool_.size() - pool_.free_pages();
  return own_bytes_ + (used > free_pages_ ? (used - free_pages_) * pool_.page_bytes() : 0);
}

void PromptCache::keep(std::vector<int32_t> tokens, state::Snapshot snapshot) {
  if (!enabled() || tokens.empty()) return;
  std::erase_if(kept_, [&](const Kept& kept) {
    // Without a recurrent part, a longer state says all that a shorter one does.
    const bool replaced = recurrent_ ? kept.tokens == tokens : common_prefix(kept.tokens, tokens) == kept.tokens.size();
    if (replaced) own_bytes_ -= kept.snapshot.bytes();
    return replaced;
  });
  std::erase(gone_, tokens);
  own_bytes_ += snapshot.bytes();
  Kept& added = kept_.emplace_back(Kept{std::move(tokens), std::move(snapshot), 0, ++uses_});
  for (Kept& other : kept_) {
    added.parent = std::max(added.parent, saved_by(other, added));
    other.parent = std::max(other.parent, saved_by(added, other));
  }
  make_bytes(0);
}

// Of a request that begins with a state's tokens, those that another state would save.
size_t PromptCache::saved_by(const Kept& other, const Kept& kept) const {
  if (&other == &kept) return 0;
  const size_t common = common_prefix(other.tokens, kept.tokens);
  return recurrent_ && (common < other.tokens.size() || common == kept.tokens.size()) ? 0 : common;
}

// Tokens that it saves, per byte that its going would free, the less the longer it has been of no use.
double PromptCache::value(const Kept& kept) const {
  const auto saved = static_cast<double>(kept.tokens.size() - kept.parent);
  const double pages = static_cast<double>(kept.snapshot.pages_of_its_own() * pool_.page_bytes());
  const double bytes = static_cast<double>(kept.snapshot.bytes()) + pages + 1;
  return (saved + 1) / bytes / static_cast<double>(1 + uses_ - kept.used);
}

void PromptCache::drop_least() {
  const auto least = std::ranges::min_element(kept_, {}, [&](const Kept& kept) { return value(kept); });
  for (Kept& kept : kept_) {
    if (&kept == &*least || saved_by(*least, kept) < kept.parent) continue;
    kept.parent = 0;
    for (const Kept& other : kept_)
      if (&other != &*least) kept.parent = std::max(kept.parent, saved_by(other, kept));
  }
  own_bytes_ -= least->snapshot.bytes();
  gone_.push_back(std::move(least->tokens));
  if (gone_.size() > kRemembered) gone_.pop_front();
  kept_.erase(least);
  ++evicted_;
}

bool PromptCache::make_room(size_t pages) {
  while (pool_.free_pages() < pages && !kept_.empty()) drop_least();
  return pool_.free_pages() >= pages;
}

bool PromptCache::make_bytes(uint64_t more) {
  if (more > budget_) return false;
  while (bytes() + more > budget_ && !kept_.empty()) drop_least();
  return bytes() + more <= budget_;
}

void PromptCache::clear() {
  kept_.clear();
  gone_.clear();
  own_bytes_ = 0;
}

std::vector<size_t> snapshot_places(size_t n, size_t cached, std::span<const size_t> turn_starts,
                                    const SnapshotPlaces& places) {
  std::vector<size_t> out(turn_starts.begin(), turn_starts.end());
  if (n > 0) out.push_back(n - 1);
  if (n > places.before_end) out.push_back(n - places.before_end);
  if (places.every > 0)
    for (size_t at = places.every; at < n; at += places.every) out.push_back(at);
  std::erase_if(out, [&](size_t at) { return at <= cached || at >= n; });
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (out.size() > places.limit) out.erase(out.begin(), out.end() - static_cast<ptrdiff_t>(places.limit));
  return out;
}

}  // namespace sluice
