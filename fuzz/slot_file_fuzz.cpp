// A slot file of any content ends in an Error that leaves the pool of pages as it was, or in states that fit: tokens of
// the vocabulary, as many as positions, pages that were free. Its checksums are put right before it is read, else no
// change would get past them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "engine/slot_file.h"

namespace {

using Bytes = std::vector<std::byte>;

// Of a model so small that files of it can be, too. The seeds are of it.
constexpr sluice::SlotIdentity kIdentity{7, sluice::ops::cpu::CacheType::kF16, 48, 12};
constexpr sluice::SlotLimits kLimits{300, 100};
constexpr size_t kPages = 8;

constexpr size_t kFileBytes = 16, kChecksum = 24, kHeader = 128, kState = 16;  // docs/slot-files.md

void check(bool holds) {
  if (!holds) std::abort();
}

// Size and checksums as the counts in the header call for, as far as they lie inside.
void seal(Bytes& file) {
  if (file.size() < kHeader) return;
  const auto count = [&](size_t at) { return uint64_t{sluice::load<uint32_t>(&file[at])}; };
  const uint64_t states = count(12), tokens = count(64), places = count(68), pages = count(72);
  const uint64_t front = kHeader + kState * states + 8 * pages + 4 * (tokens + places);
  if (front > file.size()) return;
  const auto sum = [&](uint64_t from, uint64_t bytes, uint64_t to) {
    if (from + bytes <= file.size()) sluice::store(&file[to], sluice::xxh64(std::span(file).subspan(from, bytes)));
  };
  for (uint64_t i = 0; i < pages; ++i)
    sum(front + i * kIdentity.page_bytes, kIdentity.page_bytes, kHeader + kState * states + 8 * i);
  const uint64_t behind_pages = front + pages * kIdentity.page_bytes;
  for (uint64_t i = 0; i < states; ++i)
    sum(behind_pages + i * kIdentity.recurrent_bytes, kIdentity.recurrent_bytes, kHeader + kState * i + 8);
  sluice::store(&file[kFileBytes], uint64_t{file.size()});
  sluice::store(&file[kChecksum], uint64_t{0});
  sum(0, front, kChecksum);
}

void check_states(const std::vector<sluice::SavedState>& states, const sluice::state::PagePool& pool) {
  std::set<sluice::state::PageId> used;
  for (const sluice::SavedState& state : states) {
    const size_t length = state.snapshot.length();
    check(length == state.tokens.size() && length <= kLimits.context);
    check(std::ranges::all_of(state.tokens, [](int32_t t) { return t >= 0 && t < int32_t{kLimits.n_vocab}; }));
    check(state.snapshot.pages().size() == (length + 63) / 64);
    check(state.snapshot.recurrent().size() == kIdentity.recurrent_bytes);
    used.insert(state.snapshot.pages().begin(), state.snapshot.pages().end());
  }
  check(pool.free_pages() + used.size() == pool.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  seal(bytes);
  sluice::state::PagePool pool(kIdentity.page_bytes, kPages);
  try {
    check_states(sluice::read_slot_file(*sluice::memory_file("S", bytes), kIdentity, kLimits, pool), pool);
  } catch (const sluice::Error& error) {
    check(error.kind() != sluice::ErrorKind::kInternal);
  }
  check(pool.free_pages() == kPages);
  return 0;
}
