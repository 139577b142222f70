// Expands the packed codebooks of grids.inc at compile time.
#include "quant/grids.h"

#include <cstddef>

namespace sluice::quant {
namespace {

#include "quant/grids.inc"

template <size_t n>
constexpr uint64_t fnv1a(const uint16_t (&entries)[n], uint64_t hash) {
  for (const uint64_t entry : entries) {
    hash = (hash ^ (entry & 255)) * 0x100000001b3u;
    hash = (hash ^ (entry >> 8)) * 0x100000001b3u;
  }
  return hash;
}

constexpr uint64_t checksum() {
  uint64_t hash = 0xcbf29ce484222325u;
  hash = fnv1a(kIq1Packed, hash);
  hash = fnv1a(kIq2XxsPacked, hash);
  hash = fnv1a(kIq2XsPacked, hash);
  hash = fnv1a(kIq2SPacked, hash);
  hash = fnv1a(kIq3XxsPacked, hash);
  return fnv1a(kIq3SPacked, hash);
}
static_assert(checksum() == kGridChecksum, "grids.inc is damaged; run tools/make_quant_grids.py");

// Entry is uint64_t for 8 weights an entry, uint32_t for 4; level numbers have 2 or 4 bits in the packed form.
template <typename Entry, size_t n, size_t n_levels>
constexpr std::array<Entry, n> expand(const uint16_t (&packed)[n], const int8_t (&levels)[n_levels]) {
  constexpr size_t kWeights = sizeof(Entry), kBits = 16 / kWeights;
  std::array<Entry, n> grid{};
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i < kWeights; ++i) {
      const auto level = static_cast<uint8_t>(levels[(packed[k] >> (kBits * i)) & ((1u << kBits) - 1)]);
      grid[k] |= static_cast<Entry>(level) << (8 * i);
    }
  }
  return grid;
}

constexpr int8_t kTernary[] = {-1, 0, 1};
constexpr int8_t kTwoBit[] = {8, 25, 43};
constexpr int8_t kThreeBitXxs[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kThreeBit[] = {1, 3, 5, 7, 9, 11, 13, 15};

}  // namespace

constinit const std::array<uint64_t, 2048> kIq1Grid = expand<uint64_t>(kIq1Packed, kTernary);
constinit const std::array<uint64_t, 256> kIq2XxsGrid = expand<uint64_t>(kIq2XxsPacked, kTwoBit);
constinit const std::array<uint64_t, 512> kIq2XsGrid = expand<uint64_t>(kIq2XsPacked, kTwoBit);
constinit const std::array<uint64_t, 1024> kIq2SGrid = expand<uint64_t>(kIq2SPacked, kTwoBit);
constinit const std::array<uint32_t, 256> kIq3XxsGrid = expand<uint32_t>(kIq3XxsPacked, kThreeBitXxs);
constinit const std::array<uint32_t, 512> kIq3SGrid = expand<uint32_t>(kIq3SPacked, kThreeBit);

}  // namespace sluice::quant
