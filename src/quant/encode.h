// What the quantizers of this room share: refusing values that a block cannot hold, and packing codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::quant {

// Where a quantizer is, for its error messages.
struct Place {
  const char* format;
  size_t block;
};

// Throws Error(kUnsupported) naming the place and the value if any weight of the block is infinite or NaN.
void require_finite(Place place, std::span<const float> weights);

// A block's scale or minimum as f16. Throws Error(kUnsupported) when it rounds to infinity.
uint16_t encode_scale(Place place, float scale);

// 2n codes below 16 (higher bits are ignored) to n bytes: the first n in the low nibbles, the others in the high ones.
// The inverse of unpack_nibbles (fields.h).
template <size_t n>
void pack_nibbles(const uint8_t* codes, std::byte* out) {
  for (size_t j = 0; j < n; ++j) out[j] = static_cast<std::byte>((codes[j] & 15) | ((codes[n + j] & 15) << 4));
}

}  // namespace sluice::quant
