// Compiled with AVX2 and FMA.
#include "cli/machine/loops.h"

namespace sluice::cli::machine {

namespace {

// The most that any product can do without dot-product instructions: bytes times bytes in pairs, added up in 16 bits. A
// kernel has to weigh these sums now and then on top. Only the additions wait for each other, for a cycle.
constexpr size_t kInt8Chains = 8;

uint64_t int8(size_t rounds) {
  return int8_wide<kInt8Chains>(
      rounds, [](__m256i sum, __m256i a, __m256i b) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)); });
}

}  // namespace

extern const Units kAvx2;
const Units kAvx2 = {.name = "avx2",
                     .int8_how = "vpmaddubsw + vpaddw",
                     .read = read_wide,
                     .int8 = {int8, 2.0 * 32 * kInt8Chains},
                     .f32 = kFmaWide};

}  // namespace sluice::cli::machine
