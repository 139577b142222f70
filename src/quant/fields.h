// Reading the fields of a block, shared by the unpackers of this room.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "quant/format.h"
#include "quant/half.h"

namespace sluice::quant {

inline const uint8_t* bytes_of(const std::byte* block) { return reinterpret_cast<const uint8_t*>(block); }

inline float load_f16(const std::byte* at) { return f16_to_f32(load<uint16_t>(at)); }

// The formats that have no sub-block scales.
inline void set_unit_scales(UnpackedBlock& out, size_t groups) {
  for (size_t g = 0; g < groups; ++g) out.scales[g] = 1;
}

// 2n four-bit codes of n bytes, in GGUF's usual order: all low nibbles, then all high ones.
template <size_t n>
void unpack_nibbles(const uint8_t* bytes, int8_t* codes) {
  for (size_t j = 0; j < n; ++j) codes[j] = static_cast<int8_t>(bytes[j] & 15);
  for (size_t j = 0; j < n; ++j) codes[n + j] = static_cast<int8_t>(bytes[j] >> 4);
}

// 4 x 32 two-bit codes of 32 bytes: the lowest pair of bits of every byte, then the next pair, and so on.
inline void unpack_bit_pairs(const uint8_t* bytes, int8_t* codes) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int l = 0; l < 32; ++l) codes[32 * pair + l] = static_cast<int8_t>((bytes[l] >> (2 * pair)) & 3);
  }
}

}  // namespace sluice::quant
