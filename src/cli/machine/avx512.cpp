// Compiled with AVX-512 F and BW.
#include "cli/machine/loops.h"

namespace sluice::cli::machine {

namespace {

uint64_t int8(size_t rounds) {
  return int8_wide<kChains>(
      rounds, [](__m512i sum, __m512i a, __m512i b) { return _mm512_add_epi16(sum, _mm512_maddubs_epi16(a, b)); });
}

}  // namespace

extern const Units kAvx512;
const Units kAvx512 = {.name = "avx512",
                       .int8_how = "vpmaddubsw + vpaddw zmm",
                       .read = read_wide,
                       .int8 = {int8, 2.0 * 64 * kChains},
                       .f32 = kFmaWide};

}  // namespace sluice::cli::machine
