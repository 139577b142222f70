// The codebooks of the grid formats, one byte a weight: entry k of a table is the run of 8 (or 4) weights that index k
// stands for, its first weight in the lowest byte. Unsigned magnitudes for IQ2 and IQ3, whose signs are stored apart.
#pragma once

#include <array>
#include <cstdint>

namespace sluice::quant {

extern const std::array<uint64_t, 2048> kIq1Grid;    // IQ1_S, IQ1_M: -1, 0, 1
extern const std::array<uint64_t, 256> kIq2XxsGrid;  // 8, 25, 43
extern const std::array<uint64_t, 512> kIq2XsGrid;
extern const std::array<uint64_t, 1024> kIq2SGrid;
extern const std::array<uint32_t, 256> kIq3XxsGrid;  // 4, 12, 20, 28, 36, 44, 52, 62
extern const std::array<uint32_t, 512> kIq3SGrid;    // 1, 3, ... 15

}  // namespace sluice::quant
