// The loops of the files for AVX2, AVX-VNNI, AVX-512 and AVX-512 VNNI, over registers of either width. Each of them
// compiles its own copy.
#pragma once

#include <immintrin.h>

#include "cli/machine/units.h"

namespace sluice::cli::machine {
namespace {

#if defined(__AVX512F__)
struct Wide {
  using Integers = __m512i;
  using Floats = __m512;
  static Integers load(const void* p) { return _mm512_load_si512(p); }
  static Integers bytes(char x) { return _mm512_set1_epi8(x); }
  static Integers exclusive_or(Integers a, Integers b) { return _mm512_xor_si512(a, b); }
  static Integers bits(Floats x) { return _mm512_castps_si512(x); }
  static Floats all(float x) { return _mm512_set1_ps(x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  template <typename Register>
  static void touch(Register& x) {
    asm volatile("" : "+v"(x));
  }
};
#else
struct Wide {
  using Integers = __m256i;
  using Floats = __m256;
  static Integers load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
  static Integers bytes(char x) { return _mm256_set1_epi8(x); }
  static Integers exclusive_or(Integers a, Integers b) { return _mm256_xor_si256(a, b); }
  static Integers bits(Floats x) { return _mm256_castps_si256(x); }
  static Floats all(float x) { return _mm256_set1_ps(x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  // Makes the compiler believe that x changed, so that it repeats what it could have computed once. No instruction.
  template <typename Register>
  static void touch(Register& x) {
    asm volatile("" : "+x"(x));
  }
};
#endif
constexpr size_t kWideBytes = sizeof(Wide::Integers);

template <size_t n>
uint64_t fold(Wide::Integers (&x)[n]) {
  for (size_t i = 1; i < n; ++i) x[0] = Wide::exclusive_or(x[0], x[i]);
  uint64_t words[kWideBytes / 8], all = 0;
  __builtin_memcpy(words, &x[0], sizeof words);
  for (const uint64_t word : words) all ^= word;
  return all;
}

uint64_t read_wide(const std::byte* data, size_t bytes) {
  Wide::Integers sums[8] = {};
  for (size_t at = 0; at < bytes; at += sizeof sums)
    for (size_t j = 0; j < 8; ++j) sums[j] = Wide::exclusive_or(sums[j], Wide::load(data + at + j * kWideBytes));
  return fold(sums);
}

uint64_t fma_wide(size_t rounds) {
  Wide::Floats sums[kChains] = {};
  for (Wide::Floats& sum : sums) Wide::touch(sum);  // or they would be one and the same
  const Wide::Floats half = Wide::all(0.5f), one = Wide::all(1.0f);
  for (size_t round = 0; round < rounds; ++round)
    for (Wide::Floats& sum : sums) sum = Wide::fma(sum, half, one);  // nears 2: no denormals, no infinities
  Wide::Integers all[kChains];
  for (size_t i = 0; i < kChains; ++i) all[i] = Wide::bits(sums[i]);
  return fold(all);
}

constexpr RegisterLoop kFmaWide = {fma_wide, 2.0 * (kWideBytes / 4) * kChains};

// Runs step(sum, a, b) for all sums, `rounds` times.
template <size_t Chains, typename Step>
inline uint64_t int8_wide(size_t rounds, Step step) {
  Wide::Integers sums[Chains] = {};
  Wide::Integers a = Wide::bytes(3), b = Wide::bytes(5);
  for (size_t round = 0; round < rounds; ++round)
    for (Wide::Integers& sum : sums) {
      Wide::touch(a);
      sum = step(sum, a, b);
    }
  return fold(sums);
}

}  // namespace
}  // namespace sluice::cli::machine
