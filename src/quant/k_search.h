// What the scale searches of Q4_K, Q5_K (paired_scales.cpp) and Q6_K (signed_scales.cpp) share: codes on evenly spaced
// levels and their squared error.
//
// Both searches go three steps, each of which can only lower the error of the one before:
//  1. Every sub-block alone: try level spacings around the one that spans its values, give each its nearest codes, and
//     solve for the real scale (and minimum) that suits these codes best: linear least squares.
//  2. The super-block's f16 scales: several choices of the step in which the sub-block scales are counted; for each
//     sub-block the best of the integers next to its real scale (and minimum).
//  3. Refit: with all integers fixed, least squares again for the f16 scales, then the nearest codes again.
//
// All weights of a block count the same. Every choice of steps 2 and 3 is made on the floats that a reader will see.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/encode.h"

namespace sluice::quant {

inline constexpr size_t kSuperBlock = 256;

// Differences that no block can express, since its scale is a multiple of 2^-24.
inline constexpr float kNegligible = 0x1p-26f;

// Evenly spaced levels: code c = 0, 1, ... stands for scale * c - minimum.
struct Levels {
  float scale = 0.0f;
  float minimum = 0.0f;
};

// Sums over n (a multiple of 8) terms in eight lanes, so that the loop vectorises and its order is fixed.
template <size_t n, typename Term>
float sum_of(Term term) {
  float lanes[8] = {};
  for (size_t i = 0; i < n; i += 8) {
    for (size_t l = 0; l < 8; ++l) lanes[l] += term(i + l);
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// The nearest code of every weight, in 0..max_code; 0 for a weight or levels that are NaN.
template <size_t n, int max_code>
void nearest_codes(const float* x, Levels levels, float* codes) {
  const float inverse = levels.scale == 0.0f ? 0.0f : 1.0f / levels.scale;
  for (size_t i = 0; i < n; ++i) {
    // One comparison each way, which vectorises where std::clamp does not.
    const float position = (x[i] + levels.minimum) * inverse + 0.5f;
    const float from_zero = position > 0.0f ? position : 0.0f;
    const float within = from_zero < max_code + 0.5f ? from_zero : max_code + 0.5f;
    codes[i] = static_cast<float>(static_cast<int>(within));
  }
}

// The same as bytes.
template <size_t n, int max_code>
void store_nearest_codes(const float* x, Levels levels, uint8_t* out) {
  float codes[n];
  nearest_codes<n, max_code>(x, levels, codes);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(codes[i]);
}

template <size_t n, int max_code>
float squared_error(const float* x, Levels levels) {
  float codes[n];
  nearest_codes<n, max_code>(x, levels, codes);
  return sum_of<n>([&](size_t i) {
    const float error = x[i] - (levels.scale * codes[i] - levels.minimum);
    return error * error;
  });
}

// Zeroes the block and says false if every weight would be 0 in it anyway; throws for weights it can't hold: those that
// pass `reach` times the largest f16, where `reach` is the largest product of integer scale and code.
inline bool begin_block(Place place, const float* x, float reach, std::byte* block, size_t block_bytes) {
  require_finite(place, {x, kSuperBlock});
  float largest = 0.0f;
  for (size_t i = 0; i < kSuperBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  encode_scale(place, largest / reach);
  std::fill(block, block + block_bytes, std::byte{0});
  return largest >= kNegligible;
}

}  // namespace sluice::quant
