// What each instruction set's kernels.cpp sets up before it includes kernels.inl: constants and the scalar operations
// that must be one IEEE instruction.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "ops/cpu/kernels.h"
#include "quant/grids.h"
#include "quant/half.h"
#include "quant/levels.h"

namespace sluice::ops::cpu {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kInfinityBits = 0x7F800000u;
// The 16-bit floats as types, so that a template can load either.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};
constexpr float to_float(Half x) { return quant::f16_to_f32(x.bits); }
constexpr float to_float(Bfloat16 x) { return quant::bf16_to_f32(x.bits); }

// 1.5 * 2^23: added to |x| < 2^22, it rounds x to an integer (ties to even) that then stands in the low mantissa bits.
constexpr float kRoundMagic = 12582912.0f;
constexpr int32_t kRoundMagicBits = 0x4B400000;
// Below this largest magnitude 127 / amax would overflow; such a block counts as zero.
constexpr float kSmallestScaled = 0x1p-119f;

}  // namespace sluice::ops::cpu
