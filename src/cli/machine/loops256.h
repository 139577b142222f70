// Loops over 256-bit registers that files for AVX2 and AVX-VNNI share. Each of them compiles its own copy.
#pragma once

#include <immintrin.h>

#include "cli/machine/units.h"

namespace sluice::cli::machine {
namespace {

// Makes the compiler believe that x changed, so that it repeats what it could have computed once. No instruction.
template <typename Register>
inline void touch(Register& x) {
  asm volatile("" : "+x"(x));
}

inline uint64_t fold(__m256i x) {
  const __m128i half = _mm_xor_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  return static_cast<uint64_t>(_mm_extract_epi64(half, 0) ^ _mm_extract_epi64(half, 1));
}

uint64_t read_256(const std::byte* data, size_t bytes) {
  __m256i sums[8] = {};
  for (size_t at = 0; at < bytes; at += sizeof sums)
    for (size_t j = 0; j < 8; ++j)
      sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at) + j));
  for (size_t j = 1; j < 8; ++j) sums[0] = _mm256_xor_si256(sums[0], sums[j]);
  return fold(sums[0]);
}

uint64_t fma_256(size_t rounds) {
  __m256 sums[kChains] = {};
  for (__m256& sum : sums) touch(sum);  // or they would be one and the same
  const __m256 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1.0f);
  for (size_t round = 0; round < rounds; ++round)
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, half, one);  // nears 2: no denormals, no infinities
  __m256i all = _mm256_setzero_si256();
  for (const __m256& sum : sums) all = _mm256_xor_si256(all, _mm256_castps_si256(sum));
  return fold(all);
}

constexpr RegisterLoop kFma256 = {fma_256, 2.0 * 8 * kChains};

// Runs step(sum, a, b) for all sums, `rounds` times.
template <size_t Chains, typename Step>
inline uint64_t int8_256(size_t rounds, Step step) {
  __m256i sums[Chains] = {};
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
  for (size_t round = 0; round < rounds; ++round)
    for (__m256i& sum : sums) {
      touch(a);
      sum = step(sum, a, b);
    }
  for (size_t i = 1; i < Chains; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  return fold(sums[0]);
}

}  // namespace
}  // namespace sluice::cli::machine
