// What the quantizers of this room share: refusing values that a block cannot hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::quant {

// Throws Error(kUnsupported) naming the format, the block and the value if any weight of the block is infinite or NaN.
void require_finite(const char* format, size_t block, std::span<const float> weights);

// A block's scale or minimum as f16. Throws Error(kUnsupported) when it rounds to infinity.
uint16_t encode_scale(const char* format, size_t block, float scale);

}  // namespace sluice::quant
