// Compiled with AVX-512 F and BW.
#include "cli/machine/loops512.h"

namespace sluice::cli::machine {

namespace {

uint64_t int8(size_t rounds) {
  const __m512i scale = _mm512_set1_epi16(7);
  return int8_512<kChains>(rounds, [scale](__m512i sum, __m512i a, __m512i b) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), scale));
  });
}

}  // namespace

extern const Units kAvx512;
const Units kAvx512 = {.name = "avx512",
                       .int8_how = "vpmaddubsw + vpmaddwd zmm",
                       .read = read_512,
                       .int8 = {int8, 2.0 * 64 * kChains},
                       .f32 = kFma512};

}  // namespace sluice::cli::machine
