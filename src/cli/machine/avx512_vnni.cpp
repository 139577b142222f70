// Compiled with AVX-512 F, BW and VNNI.
#include "cli/machine/loops.h"

namespace sluice::cli::machine {

namespace {

uint64_t int8(size_t rounds) {
  return int8_wide<kChains>(rounds, [](__m512i sum, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(sum, a, b); });
}

}  // namespace

extern const Units kAvx512Vnni;
const Units kAvx512Vnni = {.name = "avx512-vnni",
                           .int8_how = "vpdpbusd zmm",
                           .read = read_wide,
                           .int8 = {int8, 2.0 * 64 * kChains},
                           .f32 = kFmaWide};

}  // namespace sluice::cli::machine
