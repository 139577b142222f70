// Compiled with AVX2, FMA and AVX-VNNI.
#include "cli/machine/loops.h"

namespace sluice::cli::machine {

namespace {

uint64_t int8(size_t rounds) {
  return int8_wide<kChains>(rounds,
                            [](__m256i sum, __m256i a, __m256i b) { return _mm256_dpbusd_avx_epi32(sum, a, b); });
}

}  // namespace

extern const Units kAvxVnni;
const Units kAvxVnni = {.name = "avx-vnni",
                        .int8_how = "vpdpbusd ymm",
                        .read = read_wide,
                        .int8 = {int8, 2.0 * 32 * kChains},
                        .f32 = kFmaWide};

}  // namespace sluice::cli::machine
