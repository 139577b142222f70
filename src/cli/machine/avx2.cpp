// Compiled with AVX2 and FMA.
#include "cli/machine/loops256.h"

namespace sluice::cli::machine {

namespace {

// What a product with 4-bit weights needs at least: bytes times bytes in pairs, and pairs times the sub-block's scale.
// Only the additions wait for each other, for a cycle.
constexpr size_t kInt8Chains = 8;

uint64_t int8(size_t rounds) {
  const __m256i scale = _mm256_set1_epi16(7);
  return int8_256<kInt8Chains>(rounds, [scale](__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), scale));
  });
}

}  // namespace

extern const Units kAvx2;
const Units kAvx2 = {.name = "avx2",
                     .int8_how = "vpmaddubsw + vpmaddwd",
                     .read = read_256,
                     .int8 = {int8, 2.0 * 32 * kInt8Chains},
                     .f32 = kFma256};

}  // namespace sluice::cli::machine
