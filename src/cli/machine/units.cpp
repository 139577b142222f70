#include "cli/machine/units.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <vector>

namespace sluice::cli::machine {

#if defined(__x86_64__)
extern const Units kAvx512Vnni, kAvx512, kAvxVnni, kAvx2;
#elif defined(__aarch64__)
extern const Units kDotProduct;
#endif

namespace {

uint64_t read_words(const std::byte* data, size_t bytes) {
  const auto* const words = reinterpret_cast<const uint64_t*>(data);
  uint64_t sums[8] = {};  // independent, so that no load waits for another's sum
  for (size_t i = 0; i < bytes / sizeof(uint64_t); i += 8)
    for (size_t j = 0; j < 8; ++j) sums[j] ^= words[i + j];
  uint64_t all = 0;
  for (const uint64_t sum : sums) all ^= sum;
  return all;
}

constexpr Units kPortable = {.name = "portable", .int8_how = "", .read = read_words, .int8 = {}, .f32 = {}};

std::vector<Units> detect() {
  std::vector<Units> found;
#if defined(__x86_64__)
  // The compiler's test asks the processor and, for the wide registers, the operating system.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool avx_vnni = avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
  if (avx512 && __builtin_cpu_supports("avx512vnni")) found.push_back(kAvx512Vnni);
  if (avx512) found.push_back(kAvx512);
  if (avx_vnni) found.push_back(kAvxVnni);
  if (avx2) found.push_back(kAvx2);
#elif defined(__aarch64__)
  constexpr unsigned long kHasDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  if ((getauxval(AT_HWCAP) & kHasDotProduct) != 0) found.push_back(kDotProduct);
#endif
  found.push_back(kPortable);
  return found;
}

}  // namespace

std::span<const Units> usable_units() {
  static const std::vector<Units> units = detect();
  return units;
}

}  // namespace sluice::cli::machine
