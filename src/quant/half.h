// Exact conversions between f32 and the two 16-bit float formats, bit for bit the same on every machine: IEEE 754
// binary16 (f16) and bfloat16 (the upper half of an f32). Narrowing rounds to nearest, ties to even. Plain arithmetic
// without branches, so loops over these vectorise; kernels may use an instruction that does the same.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice::quant {

// Every f16 is an f32: exact. A NaN stays a NaN with its payload.
constexpr float f16_to_f32(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // The exponent's bias grows by 127 - 15; an exponent of all ones must stay one, so it gets the same step twice.
  constexpr uint32_t kBiasStep = (127u - 15u) << 23;
  const uint32_t normal = (magnitude << 13) + kBiasStep + (magnitude >= 0x7c00u ? kBiasStep : 0u);
  // Subnormal: a multiple of 2^-24, which is the last place of a float in [0.5, 1). No f32 subnormal appears on the
  // way.
  const float subnormal = std::bit_cast<float>(magnitude + 0x3f000000u) - 0.5f;
  return std::bit_cast<float>(sign | (magnitude < 0x0400u ? std::bit_cast<uint32_t>(subnormal) : normal));
}

// Round to nearest even; |x| >= 65520 becomes infinity, a NaN the quiet NaN 0x7e00 with the sign kept.
constexpr uint16_t f32_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  constexpr uint32_t kBiasStep = (127u - 15u) << 23;
  // Adding half of the last place kept, less one unless it is odd, rounds; a carry may run into the exponent.
  const uint32_t normal = (magnitude + 0x0fffu + ((magnitude >> 13) & 1u) - kBiasStep) >> 13;
  // Below 2^-14: the float adder rounds to multiples of 2^-24 when the sum lies in [0.5, 1). The operand is cut off at
  // 2^-14, so that the sum is defined for every input.
  constexpr uint32_t kSmallestNormal = 0x38800000u;
  const bool is_small = magnitude < kSmallestNormal;
  const float shifted = std::bit_cast<float>(is_small ? magnitude : 0u) + 0.5f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - 0x3f000000u;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = is_small ? subnormal : normal;
  return static_cast<uint16_t>(sign | (magnitude >= 0x47800000u ? special : finite));
}

// Every bf16 is an f32: exact.
constexpr float bf16_to_f32(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

// Round to nearest even; a NaN is made quiet and keeps its sign and the upper payload.
constexpr uint16_t f32_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

}  // namespace sluice::quant
