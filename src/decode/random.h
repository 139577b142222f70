// Random numbers that are a function of where they are used, not of when: batching, speculation, retries and restored
// states can't shift them.
//
// Source: Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
#pragma once

#include <array>
#include <cstdint>

namespace sluice::decode {

// Ten rounds of Philox over a 128-bit counter with a 64-bit key.
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = kMultiplier0 * counter[0], b = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// A number in [0, 1), a multiple of 2^-53: draw `index` at `position` of sequence `sequence` under `seed`.
constexpr double uniform(uint64_t seed, uint64_t sequence, uint32_t position, uint32_t index) {
  const auto words = philox({position, index, static_cast<uint32_t>(sequence), static_cast<uint32_t>(sequence >> 32)},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace sluice::decode
