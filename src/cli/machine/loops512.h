// Loops over 512-bit registers that files for AVX-512 with and without VNNI share. Each of them compiles its own copy.
#pragma once

#include <immintrin.h>

#include "cli/machine/units.h"

namespace sluice::cli::machine {
namespace {

// Makes the compiler believe that x changed, so that it repeats what it could have computed once. No instruction.
template <typename Register>
inline void touch(Register& x) {
  asm volatile("" : "+v"(x));
}

inline uint64_t fold(__m512i x) {
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, x);
  uint64_t all = 0;
  for (const uint64_t word : words) all ^= word;
  return all;
}

uint64_t read_512(const std::byte* data, size_t bytes) {
  __m512i sums[8] = {};
  for (size_t at = 0; at < bytes; at += sizeof sums)
    for (size_t j = 0; j < 8; ++j)
      sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(data + at + j * sizeof(__m512i)));
  for (size_t j = 1; j < 8; ++j) sums[0] = _mm512_xor_si512(sums[0], sums[j]);
  return fold(sums[0]);
}

uint64_t fma_512(size_t rounds) {
  __m512 sums[kChains] = {};
  for (__m512& sum : sums) touch(sum);  // or they would be one and the same
  const __m512 half = _mm512_set1_ps(0.5f), one = _mm512_set1_ps(1.0f);
  for (size_t round = 0; round < rounds; ++round)
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, half, one);  // nears 2: no denormals, no infinities
  __m512i all = _mm512_setzero_si512();
  for (const __m512& sum : sums) all = _mm512_xor_si512(all, _mm512_castps_si512(sum));
  return fold(all);
}

constexpr RegisterLoop kFma512 = {fma_512, 2.0 * 16 * kChains};

// Runs step(sum, a, b) for all sums, `rounds` times.
template <size_t Chains, typename Step>
inline uint64_t int8_512(size_t rounds, Step step) {
  __m512i sums[Chains] = {};
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (size_t round = 0; round < rounds; ++round)
    for (__m512i& sum : sums) {
      touch(a);
      sum = step(sum, a, b);
    }
  for (size_t i = 1; i < Chains; ++i) sums[0] = _mm512_xor_si512(sums[0], sums[i]);
  return fold(sums[0]);
}

}  // namespace
}  // namespace sluice::cli::machine
