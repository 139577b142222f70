// The table of kernels (kernels.h) of an x86 processor that has every instruction set: what this one lacks is emulated
// (test_intrinsics.h). A test program that is linked with this file, instead of the library's table, runs its tests for
// all of them.
#include "base/error.h"
#include "ops/cpu/units.h"

namespace sluice::ops::cpu {

std::span<const Kernels* const> usable_kernels() {
  static const Kernels* const all[] = {&amx::kKernels, &avx512vnni::kKernels, &avx512::kKernels, &avxvnni::kKernels,
                                       &scalar::kKernels};
  // They are emulated by AVX2, FMA and F16C; every processor that has the former two has the last.
  static const bool possible = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return possible ? std::span(all) : std::span(all).last(1);
}

std::span<const std::string_view> compiled_kernels() {
  static constexpr std::string_view names[] = {"amx", "avx512vnni", "avx512", "avxvnni", "scalar"};
  return names;
}

const Kernels& find_kernels(std::string_view name) {
  for (const Kernels* kernels : usable_kernels())
    if (kernels->name == name) return *kernels;
  fail(ErrorKind::kUsage, "{}: not among the emulated instruction sets or scalar", name);
}

}  // namespace sluice::ops::cpu
