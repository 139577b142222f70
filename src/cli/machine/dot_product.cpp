// Compiled for 64-bit ARM with the dot-product extension.
#include <arm_neon.h>

#include "cli/machine/units.h"

namespace sluice::cli::machine {

namespace {

// Makes the compiler believe that x changed, so that it repeats what it could have computed once. No instruction.
template <typename Register>
inline void touch(Register& x) {
  asm volatile("" : "+w"(x));
}

inline uint64_t fold(uint64x2_t x) { return vgetq_lane_u64(x, 0) ^ vgetq_lane_u64(x, 1); }

uint64_t read(const std::byte* data, size_t bytes) {
  uint64x2_t sums[16] = {};
  for (size_t at = 0; at < bytes; at += sizeof sums)
    for (size_t j = 0; j < 16; ++j)
      sums[j] = veorq_u64(sums[j], vld1q_u64(reinterpret_cast<const uint64_t*>(data + at) + 2 * j));
  for (size_t j = 1; j < 16; ++j) sums[0] = veorq_u64(sums[0], sums[j]);
  return fold(sums[0]);
}

uint64_t fma(size_t rounds) {
  float32x4_t sums[kChains] = {};
  for (float32x4_t& sum : sums) touch(sum);  // or they would be one and the same
  const float32x4_t half = vdupq_n_f32(0.5f), one = vdupq_n_f32(1.0f);
  for (size_t round = 0; round < rounds; ++round)
    for (float32x4_t& sum : sums) sum = vfmaq_f32(one, sum, half);  // nears 2: no denormals, no infinities
  uint64x2_t all = vdupq_n_u64(0);
  for (const float32x4_t& sum : sums) all = veorq_u64(all, vreinterpretq_u64_f32(sum));
  return fold(all);
}

uint64_t int8(size_t rounds) {
  int32x4_t sums[kChains] = {};
  int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
  for (size_t round = 0; round < rounds; ++round)
    for (int32x4_t& sum : sums) {
      touch(a);
      sum = vdotq_s32(sum, a, b);
    }
  uint64x2_t all = vdupq_n_u64(0);
  for (const int32x4_t& sum : sums) all = veorq_u64(all, vreinterpretq_u64_s32(sum));
  return fold(all);
}

}  // namespace

extern const Units kDotProduct;
const Units kDotProduct = {.name = "neon-dotprod",
                           .int8_how = "sdot",
                           .read = read,
                           .int8 = {int8, 2.0 * 16 * kChains},
                           .f32 = {fma, 2.0 * 4 * kChains}};

}  // namespace sluice::cli::machine
