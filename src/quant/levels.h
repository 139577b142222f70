// The levels that four-bit codes pick from, and the scales of one byte, as tables.
#pragma once

#include <cstdint>

namespace sluice::quant {

// Levels of IQ4_NL and IQ4_XS, a fitted curve.
constexpr int8_t kCurve[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// MXFP4 and NVFP4: E2M1 (OCP Microscaling Formats 1.0) doubled, so that all levels are integers; scales are halved in
// return. Bit 3 is the sign, minus zero is 0.
constexpr int8_t kDoubledE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Half of the scale 2^(e - 127) that byte e stands for in MXFP4.
extern const float kHalfE8m0[256];

}  // namespace sluice::quant
